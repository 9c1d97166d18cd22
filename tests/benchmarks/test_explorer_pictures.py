"""The pictures of the explorer on the pages are those that the script draws."""

import pytest
from PIL import Image


def test_every_picture_is_drawn_by_the_script_small_and_in_its_width() -> None:
    pytest.importorskip("playwright.sync_api", reason="needs the package playwright")
    from benchmarks.explorer_pictures import IMAGES, PICTURES

    files = {path.stem: path for pattern in ("view_*.png", "serve_*.png") for path in IMAGES.glob(pattern)}
    assert files.keys() == PICTURES.keys()
    for name, (width, *_) in PICTURES.items():
        with Image.open(files[name]) as picture:
            assert (picture.width, picture.mode) == (width, "P"), name
        assert files[name].stat().st_size < 100_000, name
