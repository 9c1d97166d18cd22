"""Questions, the forms in which question sets are published, and the scores of short answers.

| form | recognized by | files |
|---|---|---|
| HotpotQA, 2WikiMultiHopQA | ``context``, a list of [title, [sentences]] | ``hotpot_*.json``; ``dev.json`` |
| MuSiQue | ``paragraphs`` | ``musique_ans_*.jsonl``; of the ``full`` files, the answerable questions |
| plain | neither | any other set |

A plain record is a row of any table (`rl_agents.data.tables`):

    {"id": "q1", "question": "...", "answer": "...", "type": "bridge", "passages": [{"title": "...", "text": "..."}]}

``question`` may be ``Question``. ``answer`` is a text or a list of accepted texts, and may be ``Answer``, ``answers``
or ``golden_answers``; blank ones are dropped. Optional are ``id`` (by default the record's place from 1, of test
questions after ``test-``), ``type``, ``passages`` and ``supporting`` (ids of the passages with the answer).

Exact match and F1 are those of HotpotQA's official evaluation (Yang et al. 2018, section 5.1). Both compare texts as
`rl_agents.rewards.wording.normalized` returns them. 2WikiMultiHopQA, MuSiQue and the open-domain sets (NQ, TriviaQA,
PopQA, Bamboogle) have the same scores.
"""

from __future__ import annotations

import hashlib
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rl_agents.data import row_cache
from rl_agents.data.tables import Table, object_of, open_table, text_of
from rl_agents.errors import InputError
from rl_agents.retrieval.passages import Passage
from rl_agents.rewards.wording import normalized
from rl_agents.tools.strict_json import written

#: Answers without partial credit: a longer text with such a word is not half correct.
_ALL_OR_NOTHING = frozenset(("yes", "no", "noanswer"))


def exact_match(answer: str, references: Sequence[str]) -> float:
    """EM = 1 if the normalized answer equals a normalized reference, else 0. An empty answer equals none.

    A reference of only articles and punctuation normalizes to nothing. The answer must then equal its text, ignoring
    case and blanks. (The official script accepts any answer that normalizes to nothing.)
    """
    return float(any(_equal(answer, reference) for reference in references))


def _equal(answer: str, reference: str) -> bool:
    said, wanted = normalized(answer), normalized(reference)
    if said or wanted:
        return said == wanted
    return bool(answer.strip()) and answer.lower().split() == reference.lower().split()


def f1(answer: str, references: Sequence[str]) -> float:
    """F1 = 2PR/(P + R) over the words of the normalized texts, the best over the references; in [0, 1].

    P is the share of the answer's words in the reference, and R the share of the reference's words in the answer, with
    repetitions. If one text is yes, no or noanswer, unequal texts have 0.
    """
    return max((_f1(normalized(answer), normalized(reference)) for reference in references), default=0.0)


def _f1(answer: str, reference: str) -> float:
    if answer != reference and (answer in _ALL_OR_NOTHING or reference in _ALL_OR_NOTHING):
        return 0.0
    said, wanted = answer.split(), reference.split()
    common = sum((Counter(said) & Counter(wanted)).values())
    return 2.0 * common / (len(said) + len(wanted)) if common else 0.0


QUESTION_KEYS = ("question", "Question")
ANSWER_KEYS = ("answer", "Answer", "answers", "golden_answers")
#: The keys of a row that are read.
FIELDS = (
    *QUESTION_KEYS, *ANSWER_KEYS, "answer_aliases", "answerable", "id", "_id", "type", "context", "supporting_facts",
    "supporting", "paragraphs", "passages",
)  # fmt: skip
MAX_PASSAGES = 1000
#: Excluded records that a message lists.
NAMED = 5


@dataclass(frozen=True, slots=True)
class Question:
    """A question and its answers.

    Attributes:
        answers: accepted answers, at least one; the first is shown.
        kind: such as ``bridge`` or ``comparison``; empty if unknown.
        supporting: ids of the passages that together have the answer; empty if unknown.
        plan: for every step, the queries that find them; empty outside generated worlds.
    """

    id: str
    question: str
    answers: tuple[str, ...]
    kind: str = ""
    supporting: tuple[str, ...] = ()
    plan: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class PublishedQuestion:
    """A question and its passages in the file."""

    question: Question
    passages: tuple[Passage, ...]


def question_table(name: str | Path, columns: Mapping[str, str] | None = None) -> Table:
    """Return the rows of a table of questions; raises as `rl_agents.data.tables.open_table`."""
    return open_table(name, columns, FIELDS, "env.columns")


def read_questions(
    table: Table | str | Path,
    max_bad_share: float = 0.0,
    report: Callable[[str], None] = lambda line: None,
    prefix: str = "",
) -> Iterator[tuple[PublishedQuestion, float]]:
    """Yield the questions of a table in order, each with the share of the table read so far.

    Args:
        max_bad_share: largest share of rows that are not questions, or not JSON. They are excluded.
        report: receives a line about them.
        prefix: of the ids of questions without an id.

    Raises:
        InputError: the table or too many rows cannot be read; the message has file, place and reason of the first.
    """
    bad, count = [], 0
    for count, row in enumerate(table if isinstance(table, Table) else question_table(table), start=1):
        try:
            entry = entry_from_record(row.record(), f"{prefix}{count}")
        except ValueError as error:
            bad.append(f"{row.place}: {error}")
            if not max_bad_share:
                raise InputError(bad[0]) from error
            continue
        if entry is not None:
            yield entry, row.share
    if len(bad) > max_bad_share * count:
        counted = f"{len(bad):,} of {count:,} questions cannot be used"
        raise InputError(f"{bad[0]}; {counted}, more than env.max_bad_share={max_bad_share:g}")
    if bad:
        more = f"; {len(bad) - NAMED:,} more" if len(bad) > NAMED else ""
        report(f"{len(bad):,} of {count:,} questions excluded: {'; '.join(bad[:NAMED])}{more}")


#: Increased when the form of cached questions changes.
FORMAT = 3


def kept_tables(tables: Sequence[Table], max_bad_share: float, noun: str) -> tuple[row_cache.KeptRows, ...]:
    """Cache the questions of tables without their passages.

    Args:
        max_bad_share: see `read_questions`.
        noun: name of a question in messages.

    Raises:
        InputError: a wrong record, a table without questions, or a repeated id.
    """
    kept, seen = list[row_cache.KeptRows](), set[str]()
    for table, prefix in zip(tables, ("", "test-"), strict=False):
        version = f"questions/{FORMAT}/{max_bad_share:g}/{prefix}{table.version()}"
        kept.append(row_cache.keep(table.name, version, partial(_kept_entries, table, max_bad_share, prefix), noun))
        if not (own := set(kept[-1].ids())):
            raise InputError(f"{table.name}: no {noun}s in it")
        if twice := seen & own:
            raise InputError(f"{table.name}: the {noun} id {min(twice)!a} occurs twice")
        seen |= own
    return tuple(kept)


def _kept_entries(table: Table, max_bad_share: float, prefix: str) -> Iterator[row_cache.KeptRow]:
    def report(line: str) -> None:
        print(f"[rl_agents] {line}", file=sys.stderr)

    for entry, _ in read_questions(table, max_bad_share, report, prefix):
        yield entry.question.id, "", asdict(entry.question)


def from_kept(data: Mapping[str, Any]) -> Question:
    plan = tuple(tuple(step) for step in data["plan"])
    lists = {name: tuple(data[name]) for name in ("answers", "supporting")}
    return Question(**{**data, **lists, "plan": plan})


def entry_from_record(record: Any, name: str) -> PublishedQuestion | None:
    """Read one record of any form; None for a question marked as unanswerable. ``name`` is its id if it has none.

    Raises:
        ValueError: the record is not a question.
    """
    record = object_of(record, "a question")
    if record.get("answerable") is False:
        return None
    if "paragraphs" in record:
        found = [_musique_passage(item) for item in _bounded(record["paragraphs"], "paragraphs")]
    elif "context" in record:
        found = _hotpot_passages(record)
    else:
        found = _plain_passages(record)
    supporting = tuple(dict.fromkeys(passage.id for passage, supports in found if supports))
    named = record.get("supporting", ())
    if not isinstance(named, list | tuple) or not all(isinstance(name, str) for name in named):
        raise ValueError("supporting is not a list of passage ids")
    kind = record.get("type", "")
    question = Question(
        str(record.get("id", record.get("_id", name))),
        text_of(record, next((key for key in QUESTION_KEYS if key in record), "question")),
        _answers(record),
        kind if isinstance(kind, str) else "",
        supporting or tuple(named),
    )
    return PublishedQuestion(question, tuple(passage for passage, _ in found))


def passage_id(title: str, text: str) -> str:
    digest = hashlib.sha256(f"{title}\n{text}".encode("utf-8", "replace")).hexdigest()
    return f"{title}#{digest[:12]}"


def _answers(record: dict[str, Any]) -> tuple[str, ...]:
    key = next((key for key in ANSWER_KEYS if key in record), None)
    if key is None:
        raise ValueError(f"no 'answer' in the question; it has: {', '.join(list(record)[:8])}")
    given = written(record[key])
    answers = [given] if isinstance(given, str) else given
    aliases = record.get("answer_aliases", [])
    if not isinstance(answers, list) or not isinstance(aliases, list):
        raise ValueError(f"{key} is {type(given).__name__}, not a text or a list of texts")
    texts = [written(answer) for answer in (*answers, *aliases)]
    if not all(isinstance(answer, str) for answer in texts):
        raise ValueError(f"{key} has an item that is not a text")
    accepted = tuple(dict.fromkeys(answer for answer in texts if answer.strip()))
    if not accepted:
        raise ValueError(f"{key} has no text")
    return accepted


def _hotpot_passages(record: dict[str, Any]) -> list[tuple[Passage, bool]]:
    """Read ``context``. The copies on Hugging Face have titles and sentences in two parallel lists."""
    context, facts = record["context"], record.get("supporting_facts", [])
    if isinstance(context, dict):
        context = list(zip(context.get("title", ()), context.get("sentences", ()), strict=False))
    titles = facts.get("title") if isinstance(facts, dict) else _first_items(facts)
    if not isinstance(titles, list):
        raise ValueError("supporting_facts is not a list of [title, sentence]")
    found = []
    for item in _bounded(context, "context"):
        if not isinstance(item, list | tuple) or len(item) != 2 or not isinstance(item[0], str):
            raise ValueError("context is not a list of [title, [sentences]]")
        title, sentences = item
        if not isinstance(sentences, list) or not all(isinstance(one, str) for one in sentences):
            raise ValueError(f"the sentences of '{title[:60]}' are not a list of texts")
        # HotpotQA's sentences begin with their space, 2Wiki's do not.
        text = " ".join("".join(s if s[:1].isspace() else f" {s}" for s in sentences).split())
        found.append((Passage(passage_id(title, text), title, text), title in titles))
    return found


def _first_items(facts: Any) -> list[Any] | None:
    if not isinstance(facts, list) or not all(isinstance(fact, list) and fact for fact in facts):
        return None
    return [fact[0] for fact in facts]


def _musique_passage(item: Any) -> tuple[Passage, bool]:
    item = object_of(item, "a paragraph")
    title, text = (text_of(item, name, least=0) for name in ("title", "paragraph_text"))
    return Passage(passage_id(title, text), title, text), item.get("is_supporting") is True


def _plain_passages(record: dict[str, Any]) -> list[tuple[Passage, bool]]:
    found = []
    for item in _bounded(record.get("passages", []), "passages"):
        item = object_of(item, "a passage")
        title, text = (text_of({"title": "", **item}, name, least=0) for name in ("title", "text"))
        found.append((Passage(str(item.get("id", passage_id(title, text))), title, text), False))
    return found


def _bounded(value: Any, key: str) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{key} is {type(value).__name__}, not a list")
    if len(value) > MAX_PASSAGES:
        raise ValueError(f"{key} has {len(value)} passages, {MAX_PASSAGES} are allowed")
    return value
