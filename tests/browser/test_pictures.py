"""The pictures of the documents can be made again, by the command that made them."""

from pathlib import Path

from docs import make_page_pictures as pictures


def pictures_in(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


async def test_command_makes_every_picture_of_the_pages(tmp_path: Path) -> None:
    await pictures.make(tmp_path)
    made = pictures_in(tmp_path)
    assert made.keys() == pictures_in(pictures.FOLDER).keys()
    for content in made.values():
        assert content.startswith(b"\x89PNG")
        assert int.from_bytes(content[16:20]) == pictures.WIDTH
        assert len(content) > 20_000, "a page with something on it"
