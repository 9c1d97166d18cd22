"""JSON files read value by value."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rl_agents.data import tables
from rl_agents.errors import InputError


@given(
    st.lists(st.dictionaries(st.text(max_size=8), st.integers() | st.text(max_size=40), max_size=4), max_size=12),
    st.integers(1, 40),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_streams_equal_whole_files(tmp_path: Path, values: list[dict[str, object]], chunk: int) -> None:
    path = tmp_path / "x.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "CHUNK", chunk)
        path.write_text(json.dumps(values, indent=1), encoding="utf-8")
        assert [value for _, value in tables.JsonStream(path)] == values
        mapping = {str(number): value for number, value in enumerate(values)}
        path.write_text(json.dumps(mapping), encoding="utf-8")
        assert dict(tables.JsonStream(path)) == mapping


@pytest.mark.parametrize(
    "text", ["", "[", "[{}", "[{} {}]", '[{"a": 1},', '{"a" {}}', "[1]", '{"a": nul}', "[" * 100_000]
)
def test_broken_json_is_an_input_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=re.escape(str(path))):
        list(tables.JsonStream(path))
