"""Permuted MNIST from data to result: tuning, then every seed's chains with and without EWC (Fig. mnist)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial

from torch import Tensor

from hebblm.errors import UserError
from hebblm.files import hash_of, read_json, write_json
from hebblm.ranks import current
from hebblm.vision.permuted_mnist.chain import ChainState, Measure, Measured, run_chain
from hebblm.vision.permuted_mnist.measure import network_alone, network_and_memory
from hebblm.vision.permuted_mnist.mlp import MLP
from hebblm.vision.permuted_mnist.settings import PermutedSettings
from hebblm.vision.permuted_mnist.tasks import Draw, TaskStream, draw
from hebblm.vision.permuted_mnist.tuning import Values, held_out_scores, tune_adaptation
from hebblm.vision.permuted_mnist.work import Work, work
from hebblm.vision.seeds import check_seeds, divided
from hebblm.vision.setup import Setup
from hebblm.vision.tuning import best


@dataclass(frozen=True, slots=True)
class SeedOutcome:
    """What one seed gave.

    Args:
        seed: the seed.
        drawn: its tasks.
        labels: (n,) int64 of the test samples.
        predictions: by method, (T, T, n) uint8.
        totals: by method, and for training as ``training-mlp`` and ``training-ewc``: seconds, rose.
    """

    seed: int
    drawn: Draw
    labels: Tensor
    predictions: Mapping[str, Tensor]
    totals: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run gave.

    Args:
        values: the hyper-parameters.
        seeds: one by one.
    """

    values: Values
    seeds: tuple[SeedOutcome, ...]


class PermutedMnist:
    """A run that can be interrupted and goes on after the last finished task.

    Args:
        setup: data, settings and seeds.

    Raises:
        UserError: a seed twice, none at all, or more samples asked for than there are.
    """

    def __init__(self, setup: Setup[PermutedSettings]) -> None:
        settings, dataset, seeds = setup.settings, setup.dataset, setup.seeds
        self._settings = settings
        self._seeds = check_seeds(seeds)
        self._state = setup.state
        self._streams = {
            seed: TaskStream(dataset, draw(dataset, settings, seed), setup.device) for seed in seeds
        }
        self._run = {
            "settings": asdict(settings),
            "data": dict(dataset.sha256),
            "device": setup.device.type,
            "tuned_with": seeds[0] if settings.tuned else None,
        }

    def run(self) -> Outcome:
        """Run to the end, or finish what was interrupted.

        Raises:
            UserError: the folder holds the state of another run, or training diverged.
        """
        settings, first = self._settings, self._streams[self._seeds[0]]
        adapted = len(self._seeds) * len(settings.stored) * self._tested(settings.tasks)
        trained = len(self._seeds) * 2 * settings.tasks
        if settings.tuned:
            adapted += self._tuning_queries()
            trained += (len(settings.ewc_lambda) + 1) * settings.tune_tasks
        with work(settings, first.dataset.train.width, first.dataset.classes) as progress:
            progress.plan(chained_tasks=trained, queries=adapted)
            with current().in_turn():
                values = self._tune(progress) if settings.tuned else Values.given(settings)
            outcomes = tuple(
                divided([partial(self._run_seed, seed, values, progress) for seed in self._seeds])
            )
        return Outcome(values, outcomes)

    def _tested(self, tasks: int) -> int:
        """Return how many test samples one memory size adapts to after the first ``tasks`` tasks."""
        return sum((task + 1) * self._settings.tested(task) for task in range(tasks))

    def _tuning_queries(self) -> int:
        """Return how many queries tuning adapts."""
        settings = self._settings
        points = len(settings.mbpa_lambda) * len(settings.stored)
        return points * settings.tune_tasks * settings.tune_samples

    def _tune(self, progress: Work) -> Values:
        """Return the best hyper-parameters of the first seed's first tasks on held-out samples."""
        settings, seed = self._settings, self._seeds[0]
        stream, path = self._streams[seed], self._state / "tuning.json"
        run = hash_of(self._run)
        if path.exists():
            document = read_json(path)
            if not isinstance(document, dict) or document.get("run") != run:
                raise UserError(
                    f"{path} belongs to a run with other settings, data or seeds; delete {self._state} to start "
                    "anew, or choose another --output-path"
                )
            tried = document["tried"]
            progress.skip(
                tasks=(len(settings.ewc_lambda) + 1) * settings.tune_tasks, queries=self._tuning_queries()
            )
        else:
            tried = {"ewc": []}
            for strength in settings.ewc_lambda:
                progress.describe(f"tune EWC, lambda {strength:g}")
                model = self._tuning_chain(seed, strength, run, progress).model
                scores = held_out_scores(stream, model, settings.tune_tasks, settings.held_out)
                tried["ewc"].append({"lambda": strength, **scores})
            progress.describe("tune MbPA and Hebb")
            model = self._tuning_chain(seed, None, run, progress).model
            for size in settings.stored:
                mbpa, hebb = tune_adaptation(stream, settings, model, size, progress.queries)
                tried |= {f"mbpa-{size}": mbpa.tried, f"hebb-{size}": hebb.tried}
            write_json(path, {"run": run, "tried": tried}, seal=True)
        adaptation = {
            size: (best(tried[f"mbpa-{size}"]), best(tried[f"hebb-{size}"])) for size in settings.stored
        }
        return Values.chosen(best(tried["ewc"]), adaptation)

    def _tuning_chain(self, seed: int, strength: float | None, run: str, progress: Work) -> ChainState:
        """Learn the first tasks without looking at a test sample."""
        name = "mlp" if strength is None else f"ewc-{strength:g}"
        return run_chain(
            self._streams[seed],
            self._settings,
            _nothing,
            tasks=self._settings.tune_tasks,
            seed=seed,
            strength=strength,
            path=self._state / f"tuning-{name}.safetensors",
            run=run,
            progress=progress.epochs,
            skip=lambda tasks: progress.skip(tasks=tasks),
        )

    def _run_seed(self, seed: int, values: Values, progress: Work) -> SeedOutcome:
        """Learn all tasks twice, with and without EWC, and evaluate after each."""
        settings, stream = self._settings, self._streams[seed]
        chosen = {size: asdict(value) for size, value in values.adaptation.items()}
        run = hash_of({**self._run, "seed": seed, "ewc": values.ewc, "adaptation": chosen})

        def chain(name: str, strength: float | None, measure: Measure, adapts: int) -> ChainState:
            progress.describe(f"seed {seed}, {name}")
            return run_chain(
                stream,
                settings,
                measure,
                tasks=settings.tasks,
                seed=seed,
                strength=strength,
                path=self._state / f"seed-{seed}-{name}.safetensors",
                run=run,
                progress=progress.epochs,
                skip=lambda done: progress.skip(tasks=done, queries=adapts * self._tested(done)),
            )

        memory = network_and_memory(stream, settings, values.adaptation, progress.queries)
        plain = chain("mlp", None, memory, len(settings.stored))
        consolidated = chain("ewc", values.ewc, network_alone(stream, settings, "ewc"), 0)
        totals = {
            ("training-" + kind if name == "training" else name): total
            for kind, state in (("mlp", plain), ("ewc", consolidated))
            for name, total in state.totals.items()
        }
        return SeedOutcome(
            seed,
            stream.drawn,
            stream.dataset.test.labels[stream.drawn.test],
            {**plain.predictions, **consolidated.predictions},
            totals,
        )


def _nothing(model: MLP, task: int) -> Mapping[str, Measured]:
    """Measure nothing."""
    return {}
