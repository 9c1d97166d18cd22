"""Long answers held against evidence and points, by hand."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_agents.rewards.grounding import MAX_SENTENCES, Statement, grounded_share, sentences, stated_share

EVIDENCE = (
    "History of Velmora\nVelmora was founded by Ada Tarn. Old songs compare it with Torhaven.",
    "Geography of Torhaven\nIt lies on the river Ister. It never had a wall.",
    "velmora trade glass . velmora year 1482 .",
)


@pytest.mark.parametrize(
    ("sentence", "supported"),
    [
        ("Velmora was founded by Ada Tarn.", True),
        ("Ada Tarn founded Velmora.", True),
        ("However, Velmora was founded by Ada Tarn.", True),
        ("Clearly Velmora was founded by Ada Tarn.", True),
        ("Velmora was founded by Ada Moor.", False),  # a name that no source has
        ("Velmora was founded by Torhaven.", False),  # the words stand in two sentences
        ("Torhaven was founded by Ada Tarn.", False),
        ("Torhaven lies on the Ister.", True),  # the heading names the town
        ("Velmora lies on the Ister.", False),
        ("It lies on the Ister.", True),
        ("Torhaven does not lie on the Ister.", False),
        ("Torhaven never had a wall.", True),
        ("Torhaven had a wall.", False),
        ("velmora trade glass", True),
        ("velmora trade salt", False),  # two of three words
        ("velmora year 1483", False),
        ("Ada Tarn established Velmora.", True),  # three of four words, and all names
        ("The lady Tarn established Velmora.", False),  # a paraphrase: two of four
    ],
)
def test_what_follows_from_the_evidence(sentence: str, supported: bool) -> None:
    assert grounded_share(sentence, EVIDENCE) == float(supported)


def test_shares_of_sentences_and_names() -> None:
    answer = "Velmora was founded by Ada Tarn. Velmora was founded in 1300. It is. It was. "
    assert grounded_share(answer, EVIDENCE) == 0.5  # sentences of function words state nothing
    points = ("Velmora was founded by Ada Tarn.", "Torhaven lies on the river Ister.")
    assert stated_share(answer, points) == 0.5
    assert stated_share("Torhaven lies on the river Ister and Velmora was founded by Ada Tarn.", points) == 1.0
    assert grounded_share("", EVIDENCE) == grounded_share("It is.", EVIDENCE) == stated_share("x", ()) == 0.0
    assert grounded_share("Velmora", ()) == 0.0
    assert sentences('He said "Go!" Then 3.5 m... . \n\nEnd') == ['He said "Go!', "Then 3.5 m...", "End"]
    assert len(sentences("a b. " * 5 * MAX_SENTENCES)) <= MAX_SENTENCES + 1
    assert Statement.of("Yesterday the US Navy's B2 met Ada in Rome.").names == {
        "yesterday", "navy", "b2", "ada", "rome",
    }  # fmt: skip


@settings(deadline=None)
@given(st.text(), st.lists(st.text(), max_size=3))
def test_any_text_has_a_share(answer: str, evidence: list[str]) -> None:
    assert 0 <= grounded_share(answer, evidence) <= 1 and 0 <= stated_share(answer, evidence) <= 1


@given(st.lists(st.sampled_from(["Velmora was big.", "In 1482 Ada left.", "Glass is made there."]), min_size=1))
def test_what_the_evidence_says_is_grounded(said: list[str]) -> None:
    text = " ".join(said)
    assert grounded_share(text, [text]) == 1.0
