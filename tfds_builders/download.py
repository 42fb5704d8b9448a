"""Finds a released file, or fetches it; an interrupted download goes on later."""

import pathlib
import shutil
import sys
import urllib.error
import urllib.request
from typing import Any

import tqdm

from tfds_builders.sources import DataError

_CHUNK = 1 << 20


def find_or_fetch(dl_manager: Any, home: str, filename: str) -> pathlib.Path:
    """Returns the file from `manual_dir`, or from the download directory.

    Args:
      dl_manager: TFDS download manager, which knows both directories.
      home: Page of the files.
      filename: Name of the file.

    Raises:
      DataError: The file is in neither and cannot be fetched.
    """
    manual = manual_directory(dl_manager)
    fetched = pathlib.Path(dl_manager.download_dir) / filename
    for path in (manual and manual / filename, fetched):
        if path and path.exists():
            return path
    return fetch(f"{home}/resolve/main/{filename}", fetched)


def manual_directory(dl_manager: Any) -> pathlib.Path | None:
    """Returns `manual_dir` if there is one."""
    try:
        return pathlib.Path(dl_manager.manual_dir)
    except AssertionError:  # TFDS asserts that the directory exists.
        return None


def fetch(url: str, path: pathlib.Path) -> pathlib.Path:
    """Downloads a file; what an earlier attempt got is kept and continued."""
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _continue(url, part)
    except (OSError, urllib.error.URLError) as error:
        cause = " ".join(str(getattr(error, "reason", error)).split())
        raise DataError(
            f"{path.name}: not in the manual directory, and {url} cannot be fetched "
            f"({cause}); download it elsewhere and pass its folder as --manual_dir"
        ) from error
    part.rename(path)
    return path


def _continue(url: str, part: pathlib.Path) -> None:
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"})
    try:
        response = urllib.request.urlopen(request, timeout=60)
    except urllib.error.HTTPError as error:
        if error.code == 416 and have:  # Nothing is left to fetch.
            return
        raise
    with response:
        if response.status != 206:  # The server sends the whole file.
            have = 0
        _copy(response, part, have)


def _copy(response: Any, part: pathlib.Path, have: int) -> None:
    left = response.headers.get("Content-Length")
    total = have + int(left) if left else None
    bar = tqdm.tqdm(
        total=total, initial=have, unit="B", unit_scale=True, desc=part.stem
    )
    with bar, part.open("ab" if have else "wb") as file:
        _need_room(part, total, have)
        while chunk := response.read(_CHUNK):
            file.write(chunk)
            bar.update(len(chunk))
    if total is not None and part.stat().st_size != total:
        raise OSError(f"got {part.stat().st_size} of {total} bytes; try again")


def _need_room(part: pathlib.Path, total: int | None, have: int) -> None:
    free = shutil.disk_usage(part.parent).free
    if total is not None and total - have > free:
        raise OSError(f"{total - have} bytes to fetch but {free} free on the disk")
    print(f"fetching into {part}", file=sys.stderr)
