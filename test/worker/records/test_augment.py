"""Variants of an ARC task: turned, recoloured, and in another order."""

import hashlib
import random

from hypothesis import given
from hypothesis import strategies as st

from arc_tasks import TASK, encode_task, prompts
from gleaner_worker.records.chat.arc import parse_task
from gleaner_worker.records.chat.augment import Task, augment


def test_a_task_always_has_the_same_variants(tiny_folder, tmp_path):
    made = prompts(tiny_folder, tmp_path, [TASK, {"text": "x"}, TASK | {"task_id": "other"}], predictions_per_task=12)
    assert made[0] == encode_task(TASK)
    assert len(set(made[:12])) == 12
    assert made[13:] == made[:12]
    # Golden values: a change here makes another data set.
    assert augment(parse_task(TASK), 42, 1) == Task(
        train=((("65", "04"), ("39", "81")), (("2",), ("4",)), (("700", "077"), ("777",))), test=("070",)
    )
    assert (
        hashlib.sha256("\n".join(made[:12]).encode()).hexdigest()
        == "64307ecac65b7a015bc0be931592784f5169d74eba6edd96518b5fe007a4b7ab"
    )


def test_another_seed_makes_other_variants(tiny_folder):
    task = parse_task(TASK)
    assert augment(task, 1, 0) == augment(task, 2, 0) == task
    assert [augment(task, 1, k) for k in range(1, 9)] != [augment(task, 2, k) for k in range(1, 9)]


def all_turns(grid):
    turns = set()
    for rows in (grid, tuple(row[::-1] for row in grid)):
        for _ in range(4):
            rows = tuple("".join(row[n] for row in rows[::-1]) for n in range(len(rows[0])))
            turns.add(rows)
    return turns


def recoloured(a, b):
    """The colours that replace each other between two grids; None for grids that differ in more."""
    pairs = set(zip("|".join(a), "|".join(b), strict=False))
    table = dict(pairs)
    return table if len(pairs) == len(table) == len(set(table.values())) and len(a) == len(b) else None


@given(st.randoms(use_true_random=False), st.integers(0, 2**31), st.integers(1, 40))
def test_a_variant_is_its_task_turned_recoloured_and_in_another_order(rng: random.Random, seed, k):
    def grid():
        height, width = rng.randint(1, 4), rng.randint(1, 4)
        return [[rng.randint(0, 9) for _ in range(width)] for _ in range(height)]

    task = parse_task({"train": [{"input": grid(), "output": grid()} for _ in range(3)], "test": [{"input": grid()}]})
    other = augment(task, seed, k)
    assert sorted(len("".join(grid)) for grid in other.grids) == sorted(len("".join(grid)) for grid in task.grids)
    assert any(recoloured(turned, other.test) for turned in all_turns(task.test))
    for given_, wanted in other.train:
        assert any(
            any(recoloured(turned, given_) for turned in all_turns(before))
            and any(recoloured(turned, wanted) for turned in all_turns(after))
            for before, after in task.train
        )


def test_each_of_eight_variants_is_turned_in_another_way_and_the_background_seldom_changes():
    shape = ("100", "220", "000")  # unlike each of its turns in any colours
    changed = 0
    for seed in range(300):
        task = parse_task(
            {"train": [{"input": [[1]], "output": [[2]]}], "test": [{"input": [[1, 0, 0], [2, 2, 0], [0, 0, 0]]}]}
        )
        forms = [augment(task, seed, k).test for k in range(8)]
        turns = {turn for turn in all_turns(shape) for form in forms if recoloured(turn, form)}
        assert len(turns) == 8
        changed += sum("".join(form).count("0") != 6 for form in forms)
    assert 0.07 < changed / (300 * 7) < 0.11  # one in ten may change, and one in ten of those draws 0 again
