"""Packs compiled variants next to the results: RESULTS.variants.tar.xz.1, .2, and so on. Another machine then need not compile.

What comes back from a GPU machine may be limited. So MOST limits the bytes of the archive, and PART those of each file.
"""

import lzma
import tarfile
import tempfile
import time
from pathlib import Path

MOST, PART = 44 << 20, 16 << 20
FARTHEST = 256 << 20  # bytes between two copies of the same weights; the archive has only one of them


class TooLarge(Exception):
    pass


class Parts:
    """Writes a stream into the numbered files NAME.1, NAME.2, and so on. Raises TooLarge for more than `most` bytes."""

    def __init__(self, name, most, part):
        self.name, self.left, self.part, self.files = name, most, part, []

    def write(self, data):
        if len(data) > self.left:
            raise TooLarge
        self.left -= len(data)
        rest = memoryview(data)
        while rest:
            if not self.files or self.files[-1].stat().st_size == self.part:
                self.files.append(self.name.with_name(f"{self.name.name}.{len(self.files) + 1}"))
                self.files[-1].touch()
            with self.files[-1].open("ab") as file:
                room = self.part - file.tell()
                file.write(rest[:room])
            rest = rest[room:]
        return len(data)


def write(archive, folders, inputs, most, part):
    """Returns the archive's files and the number of folders that fit. If it is not len(folders), the files are useless."""
    parts, count = Parts(archive, most, part), 0
    size = sum(file.stat().st_size for folder in folders for file in folder.rglob("*") if file.is_file())
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 1, "dict_size": min(FARTHEST, max(1 << 20, size))}]
    try:
        with lzma.LZMAFile(parts, "w", filters=filters) as compressed, tarfile.open(fileobj=compressed, mode="w|") as tar:
            for count, folder in enumerate(folders):
                tar.add(folder, folder.relative_to(inputs))
    except TooLarge:
        return parts.files, count
    return parts.files, len(folders)


def pack(results_file, inputs, folders, most=MOST, part=PART):
    """Packs the folders of variants, which are below `inputs`, in their order until one does not fit. Replaces an older archive.

    Returns the names and bytes of the files, the names of the packed variants, and of those that were left out, and the seconds.
    """
    name, begun = f"{results_file.stem}.variants.tar.xz", time.monotonic()
    with tempfile.TemporaryDirectory(dir=results_file.parent) as new:
        files, count = [], len(folders)
        while count > 0:
            for file in files:
                file.unlink()
            files, fit = write(Path(new) / name, folders[:count], inputs, most, part)
            if fit == count:
                break
            count = fit
        else:
            files = []
        for old in results_file.parent.glob(f"{name}.*"):
            old.unlink()
        size = sum(file.stat().st_size for file in files)
        for file in files:
            file.replace(results_file.with_name(file.name))
    packed, left_out = ([str(folder.relative_to(inputs)) for folder in some] for some in (folders[:count], folders[count:]))
    if left_out:
        print(f"  left out of {name}, which would exceed {most >> 20} MiB: {', '.join(left_out)}", flush=True)
    return {"files": [file.name for file in files], "bytes": size, "packed": packed, "left_out": left_out, "wall_s": time.monotonic() - begun}
