"""What rows share, where that pays, and how their trie is cut into passes and shards."""

import numpy as np
import pytest

from rl_agents.learner.prefix_sharing import WIDE, branch_cost, passes, root_cost, split_shared, walk

A, B, C = np.arange(100, 140), np.arange(200, 230), np.arange(300, 310)


def rows(*parts: list[np.ndarray]) -> list[np.ndarray]:
    return [np.concatenate(part) for part in parts]


def packed_tokens(ids: list[np.ndarray], part: list[int], width: float) -> int:
    """Tokens that are forwarded when a pass's rows are packed."""
    trie = walk([ids[i] for i in part], width)
    return sum(trie.lengths) - sum(trie.shared)


def test_a_row_shares_all_it_can_with_the_one_before_it() -> None:
    ids = rows([B, C], [A, C], [A, B, C], [A, B], [A, B, A])
    trie = walk(ids)
    shared = dict(zip(trie.order, trie.shared, strict=True))
    assert sum(shared.values()) == 40 + 70 + 70, "A once, A B once, and one row is the beginning of another"
    assert trie.order == [0, 1, 2, 4, 3] and shared == {0: 0, 1: 0, 2: 40, 4: 70, 3: 70}
    assert [trie.lengths[trie.order.index(i)] for i in range(5)] == [len(row) for row in ids]


def test_ids_are_compared_as_numbers_of_any_size() -> None:
    ids = [np.array([1, 70_000, 3]), np.array([1, 70_000, 4]), np.array([1, 4_464, 3])]
    assert walk(ids).shared == [0, 2, 0], "4464 is 70000 modulo 2¹⁶"


@pytest.mark.parametrize("width", [64, 1024])
def test_a_beginning_is_shared_where_that_costs_less_than_forwarding_it_again(width: float) -> None:
    """Masked attention sees twice the pairs, so a short beginning of a long row is not worth it in a narrow network."""
    for length in (50, 400, 3000):
        pays = [branch_cost(length, p, width) < root_cost(length, width) for p in range(length)]
        first = pays.index(True)
        assert all(pays[first:]) and not any(pays[:first])
        tokens = np.arange(length)
        for common in {0, first - 1, first, length - 1} - {-1}:
            other = np.r_[tokens[:common], tokens[common:] + 10_000]
            assert walk([tokens, other], width).shared[1] == (common if pays[common] else 0)
        exact = (length / (12 * width) * length + 1) / (1 + length / (6 * width))
        assert abs(first - exact) <= 1
    assert branch_cost(400, 400, width) == 0.0, "a row that is wholly in another one"


def test_a_family_is_packed_where_all_of_it_costs_less() -> None:
    """Two long rows with a short beginning: what it saves is less than putting them together costs."""
    rng = np.random.default_rng(0)
    pair = rows(*[[A, rng.integers(1000, 2000, 400)] for _ in range(2)])
    assert passes(pair, 10_000, WIDE)[1] == []
    assert sorted(passes(pair, 10_000, 64)[1]) == [0, 1]


@pytest.mark.parametrize("limit", [1, 60, 150, 400, 10_000])
def test_passes_hold_every_row_once_within_the_limit(limit: int) -> None:
    rng = np.random.default_rng(3)
    ids = []
    for _ in range(6):
        prompt = rng.integers(0, 1000, int(rng.integers(20, 60)))
        ids += [np.r_[prompt, rng.integers(0, 1000, int(rng.integers(1, 9)))] for _ in range(int(rng.integers(2, 6)))]
    packed, alone = passes(ids, limit, 256)
    assert not alone and sorted(i for part in packed for i in part) == list(range(len(ids)))
    for part in packed:
        assert len(part) == 1 or packed_tokens(ids, part, 256) <= limit


def test_passes_are_cut_between_families() -> None:
    rng = np.random.default_rng(0)
    ids = []
    for number in range(4):
        ids += rows(*[[A + 1000 * number, rng.integers(0, 100, 5)] for _ in range(4)])
    packed, _ = passes(ids, 160, 256)
    assert sorted(sorted(part) for part in packed) == [[0, 1, 2, 3, 4, 5, 6, 7], [8, 9, 10, 11, 12, 13, 14, 15]]
    packed, _ = passes(ids, 90, 256)
    assert all(len({i // 4 for i in part}) == 1 for part in packed), "one and a half families would fit"


@pytest.mark.parametrize("shards", [1, 2, 3, 7])
def test_learners_get_equal_parts_of_the_trie(shards: int) -> None:
    rng = np.random.default_rng(0)
    ids = []
    for number in range(6):
        ids += rows(*[[A + 1000 * number, rng.integers(0, 100, 5)] for _ in range(4)])
    split = split_shared(ids, shards)
    assert len(split) == shards and sorted(i for part in split for i in part) == list(range(24))
    if shards <= 3:
        assert {len(part) for part in split} == {24 // shards} and all(part for part in split)
        assert all(len([i for i in part if i // 4 == n]) in (0, 4) for part in split for n in range(6))
