"""The only place that knows Optuna: which settings are tried next, and which trial is given up.

The trials of a sweep's own file are put into a study in memory each time, so nothing of Optuna's is
ever stored or loaded. The sampler is seeded by the sweep's seed and the number of the trial: the
same trials before give the same next one, however often the sweep was killed in between.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from phimu.errors import InputError
from phimu.studies.sweep import Sweep, Trial
from phimu.studies.varied import Varied

FIRST = 5  # trials at random, before the search has anything to go by
COMPARED = 4  # trials that must have ended before one is pruned by comparison with them


def optuna() -> Any:
    """Late, so that only a sweep pays for it."""
    try:
        import optuna
    except ImportError as error:
        raise InputError('phimu sweep needs a package: pip install "phimu[sweep]".') from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def suggest(sweep: Sweep, trials: Sequence[Trial], attempt: int = 0) -> dict[str, str]:
    """Settings for the next trial; another `attempt` draws others, at random."""
    library = optuna()
    seed = np.random.SeedSequence([sweep.seed, len(trials), attempt]).generate_state(1)[0]
    samplers = library.samplers
    if attempt:
        sampler = samplers.RandomSampler(seed=int(seed))
    else:
        # Trials at work count as bad: several workers are not sent to the same place.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", library.exceptions.ExperimentalWarning)
            sampler = samplers.TPESampler(
                seed=int(seed), n_startup_trials=FIRST, constant_liar=True
            )
    study = _study(sweep, trials, sampler)
    drawn = study.ask(_distributions(sweep)).params
    return {each.name: each.text(drawn[each.name]) for each in sweep.varied}


def prunable(sweep: Sweep, trials: Sequence[Trial], number: int) -> bool:
    """Whether a trial's latest evaluation is below the median of the others at that step.

    Half of its steps each trial has to itself: what learns fast in the end often falls at first.
    """
    if sweep.pruner == "none" or not trials[number].evaluations:
        return False
    # Optuna compares the best so far. All trials begin with the same untrained policy, and where
    # that is a lucky one no trial would ever be given up.
    latest = replace(trials[number], evaluations=trials[number].evaluations[-1:])
    trials = [*trials[:number], latest, *trials[number + 1 :]]
    pruner = optuna().pruners.MedianPruner(
        n_startup_trials=COMPARED, n_warmup_steps=math.ceil(sweep.steps / 2)
    )
    study = _study(sweep, trials, None)
    return bool(pruner.prune(study, study.get_trials(deepcopy=False)[number]))


def _study(sweep: Sweep, trials: Sequence[Trial], sampler: Any) -> Any:
    library = optuna()
    study = library.create_study(direction="maximize", sampler=sampler, study_name="sweep")
    distributions, states = _distributions(sweep), library.trial.TrialState
    for trial in trials:
        state = {
            "running": states.RUNNING,
            "done": states.COMPLETE,
            "pruned": states.PRUNED,
            "failed": states.FAIL,
        }[trial.state]
        ended = trial.state in ("done", "pruned")
        study.add_trial(
            library.trial.create_trial(
                state=state,
                value=trial.score if ended else None,
                params={each.name: each.value(trial.settings[each.name]) for each in sweep.varied},
                distributions=distributions,
                intermediate_values=dict(trial.evaluations),
            )
        )
    return study


def _distributions(sweep: Sweep) -> dict[str, Any]:
    return {each.name: _distribution(each) for each in sweep.varied}


def _distribution(varied: Varied) -> Any:
    kinds = optuna().distributions
    if varied.choices:
        return kinds.CategoricalDistribution(varied.choices)
    if varied.whole:
        return kinds.IntDistribution(int(varied.low), int(varied.high), log=varied.log)
    return kinds.FloatDistribution(varied.low, varied.high, log=varied.log)
