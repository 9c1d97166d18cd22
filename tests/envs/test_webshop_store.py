"""WebShop's catalogues, stores and retrieval."""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rl_agents.data import building
from rl_agents.envs.webshop import generated
from rl_agents.envs.webshop import store as store_writer
from rl_agents.envs.webshop.catalogue import find_catalogue
from rl_agents.envs.webshop.records import Entry, goal_at, goal_count
from rl_agents.envs.webshop.store import HITS, Store
from rl_agents.errors import InputError
from rl_agents.retrieval.bm25 import MAX_QUERY_TERMS, TOKENIZER, Analyzer

SHOP = 300


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    path = tmp_path_factory.mktemp("webshop") / "shop.sqlite"
    store_writer.build_store(path, generated.shop_entries(SHOP))
    return Store(path)


# --- ranking


def test_store_ranks_as_fts5_does(store: Store) -> None:
    db = sqlite3.connect(":memory:")
    db.execute(f"CREATE VIRTUAL TABLE t USING fts5(x, tokenize='{TOKENIZER}')")
    for number in range(SHOP):
        db.execute(
            "INSERT INTO t(rowid, x) VALUES (?, ?)", (number + 1, generated.shop_entry(number).product.document())
        )
    for number in range(0, SHOP, 10):
        query = store.goal("human", number).instruction
        words = re.findall(r"\w+", query)  # FTS5 counts repetitions, and so do we
        match = " OR ".join(f'"{word}"' for word in words)
        rows = db.execute(
            "SELECT rowid, -bm25(t) AS score FROM t WHERE t MATCH ? ORDER BY score DESC, rowid LIMIT 50", (match,)
        ).fetchall()
        ours = store._index.search(query, HITS)
        assert [score for _, score in ours] == pytest.approx([score for _, score in rows], rel=1e-9)
        asins = [generated.shop_entry(number - 1).product.asin for number, _ in ours]
        assert [hit.asin for hit in store.search(query)] == asins


def test_words_are_stemmed_and_folded() -> None:
    assert Analyzer().terms("Running SHOES, shoe! Café") == ["cafe", "run", "shoe", "shoe"]


SYNTAX = [
    '"', '""', "'", "a AND", "NOT lamp", "OR", "NEAR(a b, 5)", "NEAR/2", "title : x", "x:lamp", "-lamp", "^lamp",
    "lamp*", "*", "(((", "a + b", "{x}: lamp", "lamp\0mug", "; DROP TABLE products; --", "' OR 1=1 --", "\\", "%",
    "\ud800 lamp", "t MATCH 'x'", "delete-all", "🛋️ lamp", "a" * 5000, " ".join(map(str, range(3000))),
]  # fmt: skip


@pytest.mark.parametrize("text", SYNTAX)
def test_query_syntax_is_only_text(store: Store, text: str) -> None:
    hits = store.search(text)
    assert len(hits) <= HITS
    words = re.findall(r"[a-z0-9]+", text[:1000].encode("utf-8", "replace").decode().lower())
    assert hits == store.search(" ".join(words))
    assert store.products == store._db.execute("SELECT count(*) FROM products").fetchone()[0] == SHOP


def test_operators_are_words(store: Store) -> None:
    lamps = {hit.asin for hit in store.search("lamp")}
    assert lamps and lamps <= {hit.asin for hit in store.search("NOT lamp")}


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.text(max_size=300))
def test_any_text_can_be_searched(store: Store, text: str) -> None:
    assert len(store.search(text)) <= HITS
    assert len(Analyzer().terms(text)) <= MAX_QUERY_TERMS


# --- generated catalogues


def test_products_are_the_same_everywhere() -> None:
    first = generated.shop_entry(0).product
    assert (first.asin, generated.small_entry(0).product.asin) == ("B000000000", "S000000000")
    assert generated.shop_entry(7) == generated.shop_entry(7)
    assert len({generated.shop_entry(n).product.asin for n in range(500)}) == 500


def test_small_products_can_be_told_apart() -> None:
    products = [entry.product for entry, _ in generated.small_entries()]
    assert len(products) == generated.SMALL_PRODUCTS
    assert len({(p.query, p.attributes and frozenset(p.attributes)) for p in products}) == len(products)


def test_every_instruction_can_be_fulfilled() -> None:
    for number in range(200):
        for entry in (generated.shop_entry(number), generated.small_entry(number)):
            values = {value for axis in entry.product.options.values() for value in axis}
            for instruction in entry.instructions:
                assert instruction.options is not None and set(instruction.options) <= values
                assert instruction.attributes and set(instruction.attributes) <= set(entry.product.attributes)


# --- goals of a store


def test_goals_follow_the_published_shuffle(store: Store) -> None:
    import random

    order = list(range(store.goal_count("human")))
    random.Random(233).shuffle(order)
    for number in (0, 1, SHOP - 1):
        assert store.goal("human", number) == goal_at(generated.shop_entry(order[number]), False, 0)
    with pytest.raises(IndexError, match=f"goal {SHOP} of {SHOP}"):
        store.goal("human", SHOP)


def test_synthetic_goals_are_all_combinations() -> None:
    from rl_agents.envs.webshop.records import Instruction, product_from_record

    record = {
        "asin": "B1", "name": "Mug", "full_description": "", "small_description": "x", "pricing": "$5", "category": "c",
        "query": " Mugs ", "product_category": "k", "customization_options": {"Size": [{"value": "S"}, {"value": "L"}],
        "Color": [{"value": "Red/Blue"}, {"value": "black "}], "Style": None},
    }  # fmt: skip
    product = product_from_record(record, ["easy clean"])
    assert product is not None and product.query == "mugs"
    assert product.options == {"size": ("s", "l"), "color": ("red | blue", "black")}
    entry = Entry(product, (Instruction("Find me mugs", ("easy clean",)), Instruction("none", (), ("s",))))
    assert (goal_count(entry, True), goal_count(entry, False)) == (4, 0)
    goals = [goal_at(entry, True, number) for number in range(4)]
    assert [dict(goal.options)["color"] + dict(goal.options)["size"] for goal in goals] == [
        "red | blues", "red | bluel", "blacks", "blackl",
    ]  # fmt: skip
    assert goals[0].instruction == "Find me mugs with color: red | blue, and size: s"
    assert len({goal.price_upper for goal in goals}) == 1


# --- official files


def official(folder: Path, items: object, attributes: object = None, human: object = None) -> Path:
    (folder / "items_shuffle_1000.json").write_text(json.dumps(items), encoding="utf-8")
    (folder / "items_ins_v2_1000.json").write_text(json.dumps(attributes or {}), encoding="utf-8")
    if human is not None:
        (folder / "items_human_ins.json").write_text(json.dumps(human), encoding="utf-8")
    return folder


def record(asin: str, **changes: object) -> dict[str, object]:
    plain = {
        "asin": asin, "name": f"Oak Chair {asin}", "full_description": "sturdy", "small_description": ["one", "two"],
        "pricing": "$19.99$27.99", "category": "garden", "query": "chairs", "product_category": "a › b",
        "customization_options": {"Color": [{"value": "Red"}]},
    }  # fmt: skip
    return {**plain, **changes}


def test_official_files_are_read(tmp_path: Path) -> None:
    items = [record("B1"), record("B1", name="again"), record("nan"), record("TOOLONGASIN"), record("B2", pricing=None)]
    attributes = {
        "B1": {"attributes": ["solid wood"], "instruction": "Find me chairs", "instruction_attributes": ["solid wood"]}
    }
    human = {"B2": [
        {"instruction": "i need a red chair.", "instruction_attributes": ["easy wash"], "instruction_options": ["red"]},
        {"instruction": "nothing to check", "instruction_attributes": [], "instruction_options": []},
    ]}  # fmt: skip
    catalogue = find_catalogue(str(official(tmp_path, items, attributes, human)))
    store_writer.build_store(tmp_path / "out.sqlite", catalogue.entries())
    store = Store(tmp_path / "out.sqlite")
    assert (store.products, store.goal_count("human"), store.goal_count("synthetic")) == (2, 1, 1)
    first, second = store.product("B1"), store.product("B2")
    assert first is not None and second is not None
    assert (first.attributes, second.attributes) == (("solid wood",), ("DUMMY_ATTR",))
    assert (first.price_tag, second.price_tag, second.price) == ("$19.99 to $27.99", "$100.0", 100.0)
    goal = store.goal("human", 0)
    assert (goal.instruction, goal.options, goal.asin) == ("i need a red chair", ("red",), "B2")
    assert goal.price_upper == 140.0
    assert find_catalogue(str(tmp_path / "out.sqlite")).ensure_store() == tmp_path / "out.sqlite"
    assert find_catalogue(str(tmp_path / "items_shuffle_1000.json")).fingerprint != ""


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([record("B1"), {"asin": "B2"}], "product 2 cannot be read: no 'small_description'"),
        ([record("B1", name=5)], "product 1 cannot be read: int where text is expected"),
        ([record("B1", customization_options={"Size": [{}]})], "product 1 cannot be read: no 'value'"),
        ([["x"]], "product 1 cannot be read"),
        ({"items": 5}, "a value of an unexpected type"),
        ("text", "neither a JSON list nor a JSON object"),
    ],
)
def test_broken_official_files_are_named(tmp_path: Path, items: object, message: str) -> None:
    catalogue = find_catalogue(str(official(tmp_path, items)))
    with pytest.raises(InputError, match=re.escape(message)) as error:
        store_writer.build_store(tmp_path / "out.sqlite", catalogue.entries())
    assert "items_shuffle_1000.json" in str(error.value) and "\n" not in str(error.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["items_ins_v2_1000.json", "items_shuffle_1000.json"]


def test_missing_catalogues_are_named(tmp_path: Path) -> None:
    for name, message in (
        (str(tmp_path / "none"), "valid: small, generated"),
        (str(tmp_path), "no items_shuffle"),
        ("generated:0", "valid: small"),
        ("generated:999999999", "at most"),
    ):
        with pytest.raises(InputError, match=re.escape(message)):
            find_catalogue(name)
    (tmp_path / "x.sqlite").write_bytes(b"no database at all, but long enough to be looked at" * 100)
    with pytest.raises(InputError, match="not a WebShop product store"):
        Store(tmp_path / "x.sqlite")


def test_a_store_is_built_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RL_AGENTS_CACHE", str(tmp_path))
    path = find_catalogue("small").ensure_store()
    stamp = path.stat().st_mtime_ns
    assert find_catalogue("small").ensure_store() == path and path.stat().st_mtime_ns == stamp
    assert path.parent == tmp_path / "webshop"


def test_progress_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "SECONDS_BETWEEN_REPORTS", 0.0)
    lines: list[tuple[str, float | None]] = []
    store_writer.build_store(
        tmp_path / "s.sqlite", generated.shop_entries(5), lambda text, share: lines.append((text, share))
    )
    assert lines[0][0].startswith("1 products read") and lines[4][1] == 0.8 and "words indexed" in lines[-1][0]
