import itertools

from hypothesis import given
from hypothesis import strategies as st

from coevo.numerics.seeds import derive, noise_seed, sampling_seed

COORDINATES = st.lists(st.one_of(st.integers(0, 2**70), st.text(max_size=6)), max_size=6)


def test_seeds_are_the_same_on_every_machine_and_for_ever():
    # Journals hold seeds and replay nothing else: a change here is a change of format.
    assert derive(7, "noise", 0, 2, 5) == noise_seed(7, 0, 2, 5) == GOLDEN_NOISE
    assert sampling_seed(7, 1, 2, 3, "é", 4, None) == GOLDEN_SAMPLING


GOLDEN_NOISE = 0x8E13241CC07B698F
GOLDEN_SAMPLING = 0xB448EB46DF20355F


@given(one=COORDINATES, other=COORDINATES, root=st.integers(0, 2**32))
def test_different_coordinates_have_different_seeds_and_equal_ones_the_same(one, other, root):
    equal = [(type(c), c) for c in one] == [(type(c), c) for c in other]
    assert (derive(root, "stream", *one) == derive(root, "stream", *other)) == equal


@given(coordinates=COORDINATES, root=st.integers(0, 2**64))
def test_a_seed_has_64_bits(coordinates, root):
    assert 0 <= derive(root, "stream", *coordinates) < 2**64


def test_streams_and_roots_are_coordinates_too():
    assert len({derive(r, s, 1) for r in (1, 2) for s in ("noise", "sampling", "updater")}) == 6


def test_a_number_and_its_text_are_different_coordinates():
    assert derive(0, "s", 1) != derive(0, "s", "1")


def test_coordinates_do_not_run_into_each_other():
    assert derive(0, "s", "a", "b") != derive(0, "s", "ab") != derive(0, "s", "a,b")
    assert derive(0, "s", 1, 23) != derive(0, "s", 12, 3)


def test_no_two_members_of_a_run_share_noise():
    seeds = {noise_seed(0, g, b, m) for g, b, m in itertools.product(range(20), range(4), range(32))}
    assert len(seeds) == 20 * 4 * 32


def test_a_rollout_that_is_not_common_to_the_members_has_a_seed_of_its_own():
    seeds = {sampling_seed(0, 0, 0, 0, "e", 0, member) for member in (None, 0, 1, 2)}
    assert len(seeds) == 4
