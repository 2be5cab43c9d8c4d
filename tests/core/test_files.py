"""Text that users write: read alike with any mark and line end, refused by name and place in another encoding."""

import codecs
import os
import socket
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coevo.errors import CheckFailedError, UserError
from coevo.files import MOST_BYTES, check_source, mark_of, read_own, read_regular, read_text, read_toml

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0\r\ufeff"))
SOURCE = "# -*- coding: {} -*-\nword = 'caf\xe9'\n"


@given(text=TEXT, marked=st.booleans(), end=st.sampled_from(["\n", "\r\n", "\r"]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_text_is_read_alike_with_any_mark_and_line_end(tmp_path: Path, text: str, marked: bool, end: str):
    file = tmp_path / "text"
    file.write_bytes((codecs.BOM_UTF8 if marked else b"") + text.replace("\n", end).encode())
    assert read_text(file) == text


def saying(file: Path, data: bytes) -> str:
    file.write_bytes(data)
    with pytest.raises(UserError) as caught:
        read_text(file)
    assert str(caught.value).startswith(f"{str(file)!r} is not UTF-8: ")
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("seed = 1".encode("utf-16"), "by its byte-order mark it is UTF-16 (little-endian); save it as UTF-8"),
        (codecs.BOM_UTF16_BE + "a".encode("utf-16-be"), "it is UTF-16 (big-endian)"),
        ("seed = 1".encode("utf-32"), "it is UTF-32 (little-endian)"),
        ("a\nb = é".encode("utf-16-le"), "a zero byte in line 1, column 2, as UTF-16 and binary files have"),
        ("x = 1\nname = 'café'".encode("latin-1"), "byte 0xe9 in line 2, column 12, which is 'é' in Latin-1"),
        ("a “quote”".encode("cp1252"), "byte 0x93 in line 1, column 3, which is '“' in Latin-1 (Windows-1252)"),
        (codecs.BOM_UTF8 + b"ab\xff", "byte 0xff in line 1, column 3"),
    ],
)
def test_other_encodings_are_named_with_their_place(tmp_path: Path, data: bytes, said: str):
    assert said in saying(tmp_path / "file.toml", data)


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path):
    for path, said in ((tmp_path / "gone", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(UserError, match=f"cannot read .*: {said}"):
            read_text(path)


@pytest.mark.parametrize("encoding", ["latin-1", "utf-8", "utf-8-sig"])
def test_source_may_declare_its_encoding(tmp_path: Path, encoding: str):
    file = tmp_path / "own.py"
    file.write_bytes(SOURCE.format(encoding.removesuffix("-sig")).encode(encoding))
    check_source(file)


@pytest.mark.parametrize("data", [SOURCE.format("utf-8").encode("latin-1"), "x = 1".encode("utf-16"), b"x = '\xe9'"])
def test_source_in_another_encoding_than_it_says_is_refused(tmp_path: Path, data: bytes):
    (tmp_path / "own.py").write_bytes(data)
    with pytest.raises(UserError, match="is not UTF-8: "):
        check_source(tmp_path / "own.py")


def test_a_mark_is_named_without_reading_the_file(tmp_path: Path):
    file = tmp_path / "file"
    assert mark_of(file) == ""
    for encoding, name in (("utf-8", ""), ("utf-8-sig", "UTF-8"), ("utf-16", "UTF-16 (little-endian)")):
        file.write_text("{}", encoding=encoding)
        assert mark_of(file) == name


@pytest.mark.parametrize(("path", "said"), [("/dev/zero", "it is a device"), ("/dev/null", "it is a device")])
def test_a_device_is_no_file_to_read(path: str, said: str):
    for read in (read_text, read_toml, read_regular):
        with pytest.raises((UserError, OSError), match=f"{said}, and should be a file"):
            read(Path(path))
    with pytest.raises(CheckFailedError, match=said):
        read_own(Path(path))


def test_a_pipe_or_a_socket_is_refused_and_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)  # the name of a socket has to be short
    os.mkfifo("pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        for kind in ("pipe", "socket"):
            with pytest.raises(UserError, match=f"cannot read the file '{kind}': it is a {kind}, and should be a file"):
                read_text(Path(kind), "the file")


def test_a_file_of_no_sensible_size_is_not_read_into_memory(tmp_path: Path):
    file = tmp_path / "sparse.toml"
    with file.open("wb") as huge:
        huge.truncate(MOST_BYTES + 1)
    with pytest.raises(UserError, match="it has more than 64 MiB"):
        read_toml(file)
    assert len(read_regular(file, None)) == MOST_BYTES + 1


@pytest.mark.parametrize(
    ("text", "said"), [("a = " + "[" * 100_000, "nested too deeply"), ("a = " + "1" * 9999, "digits")]
)
def test_toml_that_is_too_much_is_one_line(tmp_path: Path, text: str, said: str):
    (tmp_path / "a.toml").write_text(text)
    with pytest.raises(UserError, match=said):
        read_toml(tmp_path / "a.toml")
