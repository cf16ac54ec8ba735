"""The maze stops what it should, lets pass what it should, and is as noisy as it says."""

import math
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import example, given, settings
from hypothesis import strategies as st

import phimu.environments
from phimu.environments.four_rooms import FourRooms
from phimu.environments.maze_geometry import Maze
from phimu.errors import InputError

MAZE = Maze()  # cross within 9.5..10.5, doorways within 3.75..6.25 and 13.75..16.25
ODD = Maze(size=17.3, wall_thickness=0.7, door_width=1.1, door_positions=(0.31, 0.87))
SERPENTINE = Maze(walls="serpentine")  # walls above 3.2, 7.4, 11.6 and 15.8, openings 3.2 wide


def move(start, displacement, maze=MAZE):
    """One move, alone, in an array and by `moved`, which must agree bit for bit."""
    one = maze.move_one(*map(float, start), *map(float, displacement))
    for many in (maze.move, lambda *rows: moved(maze, *rows)):
        rows = np.array([start], np.float64), np.array([displacement], np.float64)
        assert many(*rows)[0].tolist() == list(one)
    return one


def moved(maze, start, delta):
    """`Maze.move` of rows on the floor once more, all rows and walls at a time.

    A segment meets an open rectangle if their bounding boxes overlap and it has entered both slabs
    before it leaves either. The columns are the walls of the cross, then the boundary in x and y.
    """
    end = start + delta
    s, d, e = start[:, None, :], delta[:, None, :], end[:, None, :]
    overlap = ((np.minimum(s, e) < maze.high) & (np.maximum(s, e) > maze.low)).all(axis=-1)
    near, far = np.where(d > 0, maze.low, maze.high), np.where(d > 0, maze.high, maze.low)
    boundary = np.where(delta > 0, maze.size, 0.0)  # [N, 2]
    leaves = (end < 0.0) | (end > maze.size)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        enter = np.where(d == 0, -np.inf, (near - s) / d)  # [N, walls, 2]
        leave = np.where(d == 0, np.inf, (far - s) / d)
        out = np.where(leaves, np.minimum((boundary - start) / delta, 1.0), np.inf)
    entry = enter.max(axis=-1)
    time = np.where(overlap & (entry < leave.min(axis=-1)), np.minimum(entry, 1.0), np.inf)
    axis = (enter[..., 1] > enter[..., 0]).astype(int)
    face = np.take_along_axis(near, axis[..., None], axis=-1)[..., 0]
    times = np.concatenate([time, out], axis=-1)
    faces = np.concatenate([face, boundary], axis=-1)
    axes = np.concatenate([axis, np.broadcast_to([0, 1], boundary.shape)], axis=-1)
    rows, first = np.arange(len(start)), times.argmin(axis=-1)
    hit = times[rows, first]
    with np.errstate(invalid="ignore"):
        stopped = start + hit[:, None] * delta
    stopped[rows, axes[rows, first]] = faces[rows, first]
    low, high = (
        np.vstack([x, np.full((2, 2), y)]) for x, y in ((maze.low, 0), (maze.high, maze.size))
    )
    stopped = np.clip(stopped, low[first], high[first])  # what rounding has past the face
    position = np.clip(np.where(np.isfinite(hit)[:, None], stopped, end), 0.0, maze.size)
    for low, high in zip(maze.low, maze.high, strict=True):  # what rounding left inside
        inside = np.flatnonzero(((position > low) & (position < high)).all(axis=-1))
        depth = np.concatenate([position[inside] - low, high - position[inside]], axis=-1)
        nearest = depth.argmin(axis=-1)
        position[inside, nearest % 2] = np.concatenate([low, high])[nearest]
    return position


@pytest.mark.parametrize(
    ("start", "displacement", "end"),
    [
        # the four outer sides
        ((1, 2), (-4, 2), (0, 2.5)),
        ((19, 2), (4, 2), (20, 2.5)),
        ((2, 1), (2, -4), (2.5, 0)),
        ((2, 19), (2, 4), (2.5, 20)),
        # an arm from each of its sides
        ((8.5, 2), (4, 0.4), (9.5, 2.1)),
        ((11.5, 2), (-4, 0.4), (10.5, 2.1)),
        ((2, 8.5), (0.4, 4), (2.1, 9.5)),
        ((2, 11.5), (0.4, -4), (2.1, 10.5)),
        # the jambs of a doorway
        ((10, 5), (0.5, -2.5), (10.25, 3.75)),
        ((10, 5), (0.5, 2.5), (10.25, 6.25)),
        ((5, 10), (-2.5, 0.5), (3.75, 10.25)),
        # through each doorway, and diagonally
        ((8, 5), (4, 0), (12, 5)),
        ((12, 15), (-4, 0), (8, 15)),
        ((5, 8), (0, 4), (5, 12)),
        ((15, 12), (0, -4), (15, 8)),
        ((8, 4), (4, 2), (12, 6)),
        # into a concave corner of the cross, of the square, and of an arm with the square
        ((8.5, 8.5), (3, 3), (9.5, 9.5)),
        ((11.5, 11.5), (-3, -3), (10.5, 10.5)),
        ((19, 19), (3, 3), (20, 20)),
        ((8.5, 1), (3, -3), (9.5, 0)),
        # past a convex corner: touching it is free
        ((8.5, 2.75), (2, 2), (10.5, 4.75)),
        # the first of two walls stops it
        ((8, 9), (4, 4), (8.5, 9.5)),
        # not far enough, and exactly far enough
        ((8, 2), (1, 0), (9, 2)),
        ((8.5, 2), (1, 0), (9.5, 2)),
        ((5, 5), (0, 0), (5, 5)),
    ],
)
def test_moves_end_where_computed_by_hand(start, displacement, end):
    assert move(start, displacement) == end


@pytest.mark.parametrize(
    ("start", "displacement", "end"),
    [
        ((9.5, 2), (3, 0), (9.5, 2)),  # into the wall
        ((9.5, 2), (3, 1), (9.5, 2)),  # into it at a slant: stays, does not slide
        ((9.5, 2), (-3, 1), (6.5, 3)),  # away
        ((9.5, 2), (0, 1), (9.5, 3)),  # along
        ((9.5, 2), (0, -5), (9.5, 0)),  # along, as far as the boundary
        ((9.5, 8), (0, 5), (9.5, 9.5)),  # along, as far as the other wall
        ((2, 9.5), (4, 0), (6, 9.5)),  # along, past the doorway's mouth
        ((9.5, 3.75), (1, 0), (10.5, 3.75)),  # along the jamb, from its edge
        ((9.5, 3.75), (1, -1), (9.5, 3.75)),  # into the edge
        ((9.5, 9.5), (1, 1), (9.5, 9.5)),  # out of a corner into it
        ((9.5, 9.5), (-1, -2), (8.5, 7.5)),
        ((0, 5), (-1, 0), (0, 5)),
        ((0, 5), (0, 2), (0, 7)),
        ((5, 0), (4, 0), (9, 0)),
        ((5, 0), (9, 0), (9.5, 0)),  # no gap below the wall, along the boundary
        ((20, 20), (-12, 0), (10.5, 20)),
    ],
)
def test_a_move_from_a_face(start, displacement, end):
    assert move(start, displacement) == end


def test_a_start_that_rounding_put_inside_a_wall_leaves_by_the_nearest_face():
    start = np.array([[9.5 + 1e-7, 2.0], [10.0, 3.75 - 1e-7]])
    ends = MAZE.move(start, np.array([[5.0, 0.0], [0.0, 1.0]]))
    np.testing.assert_array_equal(ends, [[9.5, 2.0], [10.0, 4.75]])


def test_an_end_that_rounding_would_put_inside_a_wall_is_on_its_face():
    start = (2.8235291705656644, 0.2319361550504464)  # aimed at the inner corner of a room
    displacement = (10.948262824885902, 16.129234723156728)
    end = move(start, displacement, ODD)  # its y is one unit in the last place too far, unmended
    assert end == (ODD.rectangles[1][0], ODD.rectangles[4][1])


coordinate = st.one_of(
    st.floats(0, 1), st.sampled_from([0.0, 0.25, 0.475, 0.5, 0.525, 0.1875, 0.3125, 0.75, 1.0])
)
shift = st.one_of(
    st.floats(-30, 30), st.sampled_from([0.0, 1e-12, -1e-12, 1e-300, -5e-324, 1.0, -1.0])
)


@settings(max_examples=400, deadline=None)
@given(x=coordinate, y=coordinate, shifts=st.lists(st.tuples(shift, shift), min_size=1, max_size=6))
@example(x=0.475, y=0.1, shifts=[(1e-300, 0.0), (5e-324, 5e-324), (1e-12, 3.0), (3.0, -1e-12)])
@example(x=0.0, y=0.0, shifts=[(24.8125, 24.8125)])  # to a corner of the serpentine's
@pytest.mark.parametrize("maze", [MAZE, ODD, SERPENTINE], ids=["paper", "odd", "serpentine"])
def test_no_move_ends_in_a_wall_or_crosses_one(maze, x, y, shifts):
    start = maze.move(np.array([[x, y]]) * maze.size, np.zeros((1, 2)))[0]
    for displacement in shifts:
        end = np.array(move(start, displacement, maze))
        assert not maze.inside_wall(end[None])[0]
        # Every point up to the end is floor. Rounding of the samples may graze a corner.
        path = start + np.linspace(0, 1, 400)[:, None] * (end - start)
        assert depth_in_walls(maze, path).max() < 1e-9
        # The end lies on the segment, and short of its full length only at a wall.
        assert np.abs(np.cross(np.append(end - start, 0), np.append(displacement, 0))).max() < 1e-9
        if math.dist(end, start + displacement) > 1e-9:
            assert maze.distance_to_wall(end[None])[0] == 0.0
        start = end


def depth_in_walls(maze, points):
    """How deep [N] each point lies in the cross or outside the square; from the definition."""
    depth = np.maximum(-points, points - maze.size).max(axis=1)
    for left, bottom, right, top in maze.rectangles:
        inward = [points - [left, bottom], [right, top] - points]
        depth = np.maximum(depth, np.concatenate(inward, axis=1).min(axis=1))
    return depth


@pytest.mark.parametrize("maze", [MAZE, ODD], ids=["paper", "odd"])
def test_pushing_against_a_wall_for_long_never_gets_through(maze):
    rng = np.random.default_rng(0)
    room = np.array([0.3, 0.1]) * maze.size  # bottom left, left of the wall, away from doorways
    position = np.tile(room, (200, 1))
    low_wall = maze.rectangles[0]
    for _ in range(300):
        push = np.stack([rng.exponential(1.0, 200), rng.normal(0, 1e-9, 200)], axis=1)
        position = maze.move(position, push)
    np.testing.assert_array_equal(position[:, 0], low_wall[0])


def test_random_moves_end_where_all_walls_at_a_time_say():
    rng = np.random.default_rng(1)
    start = ODD.uniform_positions(3000, rng)
    for _ in range(3):  # later rounds start on faces
        delta = rng.normal(0, 4, start.shape)
        ends = ODD.move(start, delta)
        np.testing.assert_array_equal(ends, moved(ODD, start, delta))
        start = ends


def test_the_env_steps_as_the_maze_transitions():
    env = FourRooms()
    env.reset(seed=5)
    rng = np.random.default_rng()
    rng.bit_generator.state = env.np_random.bit_generator.state
    position = np.array([env.start])
    for action in np.random.default_rng(2).uniform(-1.5, 1.5, (300, 2)).astype(np.float32):
        observation, *_ = env.step(action)
        position = MAZE.transition(position, action[None], rng)
        np.testing.assert_array_equal(observation, position[0].astype(np.float32))
        assert env.position == tuple(position[0])


def test_the_transition_is_gaussian_around_the_commanded_move():
    maze = Maze(size=200.0, noise=1.5, top_speed=3.0, time_interval=0.5)
    n, action = 40_000, np.array([0.8, -0.6])
    ends = maze.transition(np.full((n, 2), 40.0), np.tile(action, (n, 1)), np.random.default_rng(3))
    assert maze.distance_to_wall(np.array([[40.0, 40.0]]))[0] > 10 * maze.noise
    standard_error = 1.5 / math.sqrt(n)
    np.testing.assert_allclose(ends.mean(axis=0), [41.2, 39.1], atol=4 * standard_error)
    # The variance of a sample variance is 2 sigma^4 / n, of a sample covariance sigma^4 / n.
    np.testing.assert_allclose(np.cov(ends.T), 2.25 * np.eye(2), atol=4 * 2.25 * math.sqrt(2 / n))


def test_actions_beyond_top_speed_are_clipped():
    maze = Maze(noise=0.0)
    end = maze.transition(np.array([[5.0, 5.0]]), np.array([[7.0, -0.5]]), np.random.default_rng(0))
    np.testing.assert_array_equal(end, [[7.0, 4.0]])


def test_uniform_positions_cover_the_floor_evenly():
    positions = MAZE.uniform_positions(40_000, np.random.default_rng(4))
    assert positions.shape == (40_000, 2)
    assert not MAZE.inside_wall(positions).any()
    # Floor: 400 less the cross (2 * 20 - 1) plus four doorways of 2.5; a room has 9.5^2 of it.
    share = 9.5**2 / (400 - 39 + 10)
    rooms = [(positions < 9.5).all(axis=1).mean(), (positions > 10.5).all(axis=1).mean()]
    np.testing.assert_allclose(rooms, share, atol=4 * math.sqrt(share * (1 - share) / 40_000))


def test_inside_wall_and_distance():
    points = np.array([[10, 2], [9.5, 2], [10, 5], [10, 10], [5, 5], [-1, 5], [8.5, 2.75]])
    np.testing.assert_array_equal(MAZE.inside_wall(points), [1, 0, 0, 1, 0, 1, 0])
    expected = [0, 0, 1.25, 0, math.hypot(4.5, 1.25), 0, 1]
    np.testing.assert_allclose(MAZE.distance_to_wall(points), expected)
    corner = np.array([[0.5, 8.0], [9.1, 4.05]])
    np.testing.assert_allclose(MAZE.distance_to_wall(corner), [0.5, 0.5])
    np.testing.assert_allclose(MAZE.distance_to_wall(corner, outer=False), [1.5, 0.5])


@pytest.mark.parametrize(
    ("start", "displacement", "end"),
    [
        ((18, 2), (0, 4), (18, 3.2)),  # the first wall, from below
        ((2, 2), (0, 6), (2, 7.4)),  # through its opening, to the second
        ((2, 6), (0, -5), (2, 1)),
        ((18, 6), (0, 4), (18, 10)),  # through the opening of the second
        ((2, 10), (0, 4), (2, 14)),  # of the third
        ((18, 14), (0, 4), (18, 18)),  # of the fourth
        ((2, 14), (0, 4), (2, 15.8)),
        ((5, 3.2), (-4, 0), (1, 3.2)),  # along a face, past its end
    ],
)
def test_moves_in_the_serpentine_by_hand(start, displacement, end):
    assert move(start, displacement, SERPENTINE) == pytest.approx(end)


def ends_in(env, policy, episodes):
    """The length of each episode that reaches the goal."""
    lengths = []
    for _ in range(episodes):
        observation, _ = env.reset()
        for step in range(1, 201):
            observation, _, reached, _, _ = env.step(policy(observation))
            if reached:
                lengths.append(step)
                break
    return lengths


def along_the_corridors(position):
    """To the open end of this corridor, up through it, and at last to the goal."""
    number = min(int(position[1] / 4.2), 4)
    open_end = 1.6 if number % 2 == 0 else 18.4
    middle = 4.2 * number + 1.6
    target = (open_end, middle + (4.2 if abs(position[0] - open_end) < 1 else 0.0))
    return np.clip((np.array((2, 18) if number == 4 else target) - position) / 2, -1, 1)


def test_the_serpentine_takes_a_plan_and_no_random_walk_gets_there():
    env = FourRooms(walls="serpentine")
    env.reset(seed=0)
    lengths = ends_in(env, along_the_corridors, 20)
    assert len(lengths) == 20
    assert min(lengths) > 40
    rng = np.random.default_rng(0)
    assert not ends_in(env, lambda _: rng.uniform(-1, 1, 2), 100)
    # In the four rooms it does.
    rooms = FourRooms()
    rooms.reset(seed=0)
    assert ends_in(rooms, lambda _: rng.uniform(-1, 1, 2), 100)


@pytest.mark.parametrize("name", ["FourRooms", "FourRoomsDense", "Serpentine"])
def test_gymnasium_checks_pass_without_a_warning(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make(f"phimu/{name}-v0", render_mode="rgb_array").unwrapped)


def test_registering_again_changes_nothing():
    spec = gymnasium.registry["phimu/FourRooms-v0"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        phimu.environments.register()
    assert gymnasium.registry["phimu/FourRooms-v0"] is spec


def test_the_episode_is_truncated_after_200_steps():
    env = gymnasium.make("phimu/FourRooms-v0", noise=0.0)
    env.reset(seed=0)
    steps = [env.step(np.zeros(2, np.float32))[2:4] for _ in range(200)]
    assert steps == [(False, False)] * 199 + [(False, True)]


def rollout(seed, **kwargs):
    env = FourRooms(**kwargs)
    actions = np.random.default_rng(9).uniform(-1, 1, (50, 2))
    return np.array([env.reset(seed=seed)[0]] + [env.step(action)[0] for action in actions])


@pytest.mark.parametrize("kwargs", [{}, {"random_start": True}])
def test_a_seed_fixes_the_episode_bit_for_bit(kwargs):
    first = rollout(1, **kwargs)
    np.testing.assert_array_equal(first, rollout(1, **kwargs))
    assert first.dtype == np.float32
    assert (first[1:] != rollout(2, **kwargs)[1:]).any()
    assert (first[0] == rollout(2, **kwargs)[0]).all() == (not kwargs)


def test_random_starts_are_floor_and_outside_the_goal():
    env = FourRooms(random_start=True, goal_radius=6.0)
    env.reset(seed=0)
    starts = []
    for _ in range(300):
        env.reset()
        starts.append(env.position)
    starts = np.array(starts)
    assert not env.maze.inside_wall(starts).any()
    assert np.linalg.norm(starts - env.goal, axis=1).min() > 6.0
    assert (np.ptp(starts, axis=0) > 18).all()


def test_start_goal_and_observation():
    env = FourRooms()
    observation, _ = env.reset(seed=0)
    np.testing.assert_array_equal(observation, np.float32([18, 2]))
    assert env.goal == (2.0, 18.0)


@pytest.mark.parametrize(
    ("start", "action", "reached"),
    [
        ((5.0, 18.0), (-1, 0), True),  # ends at (3, 18), 1 from the goal
        ((5.5, 18.0), (-1, 0), True),  # ends on the rim
        ((6.0, 18.0), (-1, 0), False),
        ((2.0, 15.5), (0, 1), True),
    ],
)
def test_reward_and_termination(start, action, reached):
    distance = math.dist(np.add(start, np.multiply(2.0, action)), (2, 18))
    for reward, expected in [("sparse", float(reached)), ("dense", reached - distance / 20)]:
        env = FourRooms(start=start, noise=0.0, reward=reward)
        env.reset(seed=0)
        _, got, terminated, truncated, _ = env.step(np.array(action, np.float32))
        assert (terminated, truncated) == (reached, False)
        assert got == pytest.approx(expected, abs=1e-12)
        assert type(got) is float


def test_passing_through_the_goal_is_not_reaching_it():
    env = FourRooms(start=(3.0, 18.5), goal=(3.0, 17.5), goal_radius=0.5, top_speed=3.0, noise=0.0)
    env.reset(seed=0)
    _, reward, terminated, _, _ = env.step(np.array([0, -1], np.float32))
    assert (reward, terminated) == (0.0, False)


def test_render_shows_walls_goal_and_agent_with_y_up():
    env = FourRooms(render_mode="rgb_array")
    env.reset(seed=0)

    def pixel(x, y):
        scale = env.resolution / 20
        return tuple(int(c) for c in frame[env.resolution - 1 - int(y * scale), int(x * scale)])

    frame = env.render()
    assert frame.shape == (env.resolution, env.resolution, 3)
    assert frame.dtype == np.uint8
    assert pixel(10, 2) == pixel(10, 10) == pixel(2, 10) == (0, 0, 0)
    assert pixel(10, 5) == pixel(5, 5) == pixel(18, 18) == (255, 255, 255)
    assert pixel(18, 2) == (255, 140, 0)
    assert pixel(2, 18) == (60, 170, 80)
    env.position = (5.0, 5.0)
    frame = env.render()
    assert pixel(5, 5) == (255, 140, 0)
    assert pixel(18, 2) == (255, 226, 190)
    assert FourRooms().render() is None


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"noise": -1.0}, "noise must be"),
        ({"noise": math.nan}, "noise must be"),
        ({"top_speed": 0.0}, "top_speed must be"),
        ({"top_speed": math.inf}, "top_speed must be"),
        ({"start": (10.0, 10.0)}, "start must be on the floor"),
        ({"start": (21.0, 1.0)}, "start must be on the floor"),
        ({"start": (math.nan, 1.0)}, "start must be on the floor"),
        ({"start": 3.0}, "start must be two numbers"),
        ({"goal": (10.0, 2.0)}, "goal must be on the floor"),
        ({"goal_radius": 0.0}, "goal_radius must lie in"),
        ({"reward": "shaped"}, "reward must be one of sparse, dense"),
        ({"render_mode": "human"}, "render_mode must be"),
    ],
)
def test_bad_arguments_are_named(kwargs, message):
    with pytest.raises(InputError, match=message):
        FourRooms(**kwargs)


def test_a_broken_action_is_named():
    env = FourRooms()
    env.reset(seed=0)
    with pytest.raises(InputError, match="action must be two finite numbers"):
        env.step(np.array([0.0, np.nan], np.float32))
