"""Where a log is: a path or a URL turned into what SQLAlchemy opens, and checks before opening."""

import os
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from rlt_fsm.errors import LogUnavailable

MEMORY_LOCATIONS: Final = (":memory:", "sqlite://", "sqlite:///:memory:")
_DRIVERS: Final = ("sqlite", "sqlite+pysqlite")


class Location(NamedTuple):
    """`name` is what the caller gave, for messages; `path` for checks, `url` for SQLAlchemy."""

    name: str
    path: Path
    url: URL


def locate(url_or_path: str | Path, *, read_only: bool) -> Location:
    """The place of a log; a read-only one gets a URL that can neither make nor change a file.

    Raises:
        LogUnavailable: the URL is none, or names a database that this version does not write.
    """
    if not isinstance(url_or_path, str | os.PathLike):
        raise LogUnavailable(f"the log's path is {url_or_path!r}: give a text or a Path")
    text = str(url_or_path)
    if not text:
        raise LogUnavailable("the log's path is empty: give the path of an SQLite file")
    if not _is_encodable(text):
        raise LogUnavailable(f"{text!r}: no file can have this name: give another path")
    url = _parse(text) if "://" in text else URL.create("sqlite", database=text)
    database = url.database
    if url.drivername not in _DRIVERS or not database:
        shown = url.render_as_string(hide_password=True)
        raise LogUnavailable(
            f"{shown}: this version keeps logs in SQLite files only: give a path or sqlite:///PATH"
        )
    is_uri = database.startswith("file:")
    path = Path(unquote(database.removeprefix("file:"))) if is_uri else Path(database)
    if read_only:
        if not is_uri:
            url = url.set(database="file:" + quote(database))
        url = url.update_query_dict({"mode": "ro", "uri": "true"})
    return Location(text, path, url)


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which no driver takes
        return False
    return "\0" not in text


def _parse(text: str) -> URL:
    try:
        return make_url(text)
    except ArgumentError as error:
        raise LogUnavailable(f"{text!r} is neither a path nor a database URL") from error


def check_place(place: Location, *, read_only: bool) -> None:
    """Say what is wrong with a place before SQLite says it less clearly.

    Raises:
        LogUnavailable: a folder, a missing file to read, or a file in a missing folder.
    """
    try:
        is_folder = place.path.is_dir()
    except OSError as error:  # a name beyond all limits
        raise LogUnavailable(f"{place.name}: {error.strerror}: give another path") from error
    if is_folder:
        raise LogUnavailable(f"{place.name}: this is a folder: give the path of a log file")
    if read_only and not place.path.exists():
        raise LogUnavailable(f"{place.name}: there is no such file")
    if not place.path.parent.is_dir():
        raise LogUnavailable(
            f"{place.name}: the folder {place.path.parent} does not exist: make it"
        )
