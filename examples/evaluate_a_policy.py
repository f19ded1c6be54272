"""Say from the log of one policy what another would earn: on real logs of a shop, and before a bandit is deployed.

The log of a policy that showed items at random says what Thompson sampling earned, whose own log knows. Then a bandit
that names digits logs its choices with a floor of exploration, two candidates learn one half of that log and are judged
on the other, and the better one is deployed.

    python examples/evaluate_a_policy.py      # about two minutes; with --quick some seconds
"""

import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import common
import numpy as np
import pandas as pd
import torch
from common import BLUE, GREEN, GREY, ORANGE, Record
from gpytorch.kernels import Kernel, LinearKernel
from matplotlib.figure import Figure

from torch_kbandits import Bandit, ConstantWidth, ContextualActions, environments
from torch_kbandits.acquisition import EpsilonGreedy, UpperConfidenceRule
from torch_kbandits.dictionaries import KORS, CappedDictionary
from torch_kbandits.evaluation import Log, doubly_robust, ips, predicted_rewards, read_log, snips, target_probabilities

CAMPAIGNS, NAMES = ("all", "men", "women"), ("IPS", "SNIPS", "DR", "known", "uniform", "best fixed")


def shop(campaign: str, policy: str) -> tuple[Log, np.ndarray]:
    """Return what a policy showed, from the package obp, and in which of three positions, (n,)."""
    if (found := find_spec("obp")) is None or found.origin is None:
        raise SystemExit("The logs of the shop are in the package obp: pip install 'obp==0.4.1'")
    path = Path(found.origin).parent / "dataset" / "obd" / policy / campaign / f"{campaign}.csv"
    data = pd.read_csv(path, usecols=["item_id", "position", "click", "propensity_score"])
    rows, clicks, propensities = (torch.tensor(data[name]) for name in ("item_id", "click", "propensity_score"))
    return Log(rows, clicks, propensities), data["position"].to_numpy() - 1


def judged(log: Log, target: Any, predictions: Any, true: Any) -> Record:
    """Return estimates of a policy's mean reward with 95 % intervals, and what was earned or is known of it."""
    words = {"log": log, "target_probabilities": target}
    estimates = {"IPS": ips(**words), "SNIPS": snips(**words), "DR": doubly_robust(predictions=predictions, **words)}
    return {name: [each.value, *each.bootstrap()] for name, each in estimates.items()} | {"known": earned(true)}


def earned(rewards: Any) -> list[float]:
    """Return the mean of rewards, and the ends of its 95 % interval."""
    mean, error = float(rewards.mean()), 1.96 * float(rewards.std()) / len(rewards) ** 0.5
    return [mean, mean - error, mean + error]


def in_the_shop(campaign: str) -> Record:
    """Return what the log of random items says of Thompson sampling, and of the best item of its other half."""
    (log, positions), (theirs, their_positions) = shop(campaign, "random"), shop(campaign, "bts")
    # Thompson sampling drew from posteriors that moved: how often it showed an item is its policy of the week.
    shown = np.zeros((items := int(log.num_actions[0]), 3))
    np.add.at(shown, (theirs.rows.numpy(), their_positions), 1.0)
    # Click rates as if each item had 500 views more, of the half of the rows in which they are not used.
    predictions, is_even = np.zeros((len(log), items)), np.arange(len(log)) % 2 == 0
    for seen in (is_even, ~is_even):
        rows, clicks = log.rows.numpy()[seen], log.rewards.numpy()[seen]
        predictions[~seen] = np.bincount(rows, clicks, items) + 500.0 * clicks.mean()
        predictions[~seen] /= np.bincount(rows, minlength=items) + 500.0
    best, other = np.eye(items)[predictions[1].argmax()], log.part(torch.from_numpy(~is_even))
    fixed = snips(log=other, target_probabilities=np.tile(best, (len(other), 1)))
    found = judged(log, (shown / shown.sum(0)).T[positions], predictions, theirs.rewards)
    return found | {"uniform": earned(log.rewards), "best fixed": [fixed.value, *fixed.bootstrap()]}


def bandit_of(problem: Any, kernel: Kernel, epsilon: float) -> Bandit:
    """Return a bandit that plays its largest upper bound, and with probability epsilon any digit."""
    return Bandit(
        candidates=ContextualActions(problem.actions, context_dim=problem.context_dim),
        kernel=kernel,
        regularization=problem.regularization,
        dictionary=CappedDictionary(KORS(), 200, when_full="stop"),
        width=ConstantWidth(0.5),
        acquisition=EpsilonGreedy(UpperConfidenceRule(), epsilon),
        seed=problem.seed,
    )


def played(problem: Any, bandit: Bandit, rounds: range) -> Log:
    """Return the log that a bandit writes while it plays some rounds, from which it learns."""
    with tempfile.TemporaryDirectory() as folder:
        bandit.log_to(Path(folder) / "choices.jsonl", contexts=True)
        for t in rounds:
            x = bandit.ask(context=problem.context(t))
            bandit.tell(x, problem.pull(problem.joint_points(x, t), t), context=problem.context(t))
        return read_log(Path(folder) / "choices.jsonl", actions=problem.actions)


def run(seed: int, rounds: int) -> Record:
    """Judge policies in the shop; log digits with a floor, judge two candidates, deploy the better one."""
    problem: Any = environments.build("digits", num_components=20, lengthscale=4.0, seed=seed)
    linear: Any = LinearKernel(active_dims=tuple(range(20))) * LinearKernel(active_dims=tuple(range(20, 30)))
    kernels = {"digits, RBF": problem.kernel, "digits, linear": linear.double()}
    log = played(problem, bandit_of(problem, problem.kernel, 0.2), range(rounds))
    learned, other = log.part(slice(rounds // 2)), log.part(slice(rounds // 2, rounds))
    fresh = range(2 * rounds, 2 * rounds + 1000)
    means = torch.stack([problem.mean(problem.joint_points(problem.actions, t), t) for t in fresh])
    found, candidates = dict[str, Record](), {name: bandit_of(problem, each, 0.05) for name, each in kernels.items()}
    for name, candidate in candidates.items():
        candidate.tell(log=learned)
        plays = torch.stack([candidate.propensities(context=problem.context(t)) for t in fresh])
        words = target_probabilities(candidate, other), predicted_rewards(candidate, other)
        found[name] = judged(other, *words, (plays * means).sum(1))
        found[name] |= {"uniform": earned(means.mean(1)), "best fixed": earned(means[:, means.mean(0).argmax()])}
    better = max(found, key=lambda name: found[name]["DR"][0])
    after = played(problem, candidates[better], range(rounds, rounds + rounds // 2))
    parts = [earned(part) for part in after.rewards.chunk(4)]
    shops = {f"clicks, {name}": in_the_shop(name) for name in CAMPAIGNS}
    return {"policies": shops | found, "better": better, "logged": earned(log.rewards), "deployed": parts}


def report(record: Record) -> list[Any]:
    """Say what was estimated of each policy and what is known, and what the deployed one earned."""
    (one,) = record["runs"]
    policies = one["policies"]
    cells = {of: [[100.0 * value for value in found[of]] for found in policies.values()] for of in NAMES}
    rows = [[of, *("{:.3g} [{:.3g}, {:.3g}]".format(*each) for each in found)] for of, found in cells.items()]
    later = ", ".join(f"{mean:.3f} [{low:.3f}, {high:.3f}]" for mean, low, high in one["deployed"])
    logged = "The policy that logged digits named {:.3f} of them.".format(one["logged"][0])
    return [
        common.table("Mean rewards in %", ["", *policies], rows),
        f"{logged} Deployed: {one['better']}, by parts {later}.",
    ]


def draw(record: Record) -> Figure:
    """Return a panel for each policy: estimates with their intervals, and what is known."""
    figure, policies = Figure(figsize=(11.0, 3.4), layout="constrained"), record["runs"][0]["policies"]
    panels = figure.subplots(1, len(policies), sharey=True)
    for axes, (name, found) in zip(panels, policies.items(), strict=True):
        for place, (of, color) in enumerate(zip(NAMES, (BLUE, GREEN, ORANGE, *"kk", GREY), strict=True)):
            axes.plot(found[of][1:], [place, place], color=color, linewidth=2.0)
            axes.plot(found[of][0], place, "o", color=color)
        axes.set(title=name, yticks=range(len(NAMES)), yticklabels=NAMES)
    panels[0].invert_yaxis()
    common.tidy(list(panels), "abcde")
    return figure


size = "rounds", 2000, 300, "rounds that are logged", 1
main = common.script("evaluate_a_policy", __doc__, run, report, draw, {}, size=size, processes=1, least=8)

if __name__ == "__main__":
    main()
