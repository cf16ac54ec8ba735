"""The tasks of MBBL (Wang et al. 2019, arXiv 1907.02057) on today's simulator.

MBBL changed the rewards of Gym's tasks so that each is a function of the state and the action. The
reward is that of the state before the step, and termination is decided on the state after it. ET in
a name stands for early termination: the episode ends when the body falls.
"""
