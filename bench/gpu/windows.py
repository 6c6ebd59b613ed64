"""The part `windows`: pictures and volumes that a semantic segmenter sees in windows.

Each case runs `millrace run` on many copies of one item, with a U-Net of seeded weights:

- `picture`: 2048 x 2048 pixels in 49 windows of 512 x 512. The goal on an H200 is 25 ms
- `volume`: 64 x 64 x 64 voxels in one window. The goal on an H200 is 73.5 volumes per second

A record has the milliseconds of an item, also as a multiple of the bare calls of its windows at the same batch. From
files, decoding counts too. Calls have windows of several items, so only the last call of a run is padded.
"""

import functools
import hashlib
import json
import statistics
import struct
import zlib
from pathlib import Path

from program import lane_of, millrace
from session import BUNDLE, Session, run, scratch
from turns import Failed

RECIPE = "stages: [decode, tiles, semantic, encode]\n"
# Side of a window, side of the item, classes, channels of the U-Net by level, copies of the item, and the goal in ms.
CASES = {"picture": (512, 2048, 3, (32, 64, 128, 256), 96, 25), "volume": (64, 64, 14, (16, 32, 64), 400, 1000 / 73.5)}
SMALL = {"picture": (32, 64, 3, (4, 8), 2, 25), "volume": (16, 16, 14, (4, 8), 2, 1000 / 73.5)}  # for rehearsals


def windows(results, inputs):
    for case in CASES:
        results.measure(functools.partial(measured, case), what="windows", package=case)


def u_net(dimensions, inputs, classes, widths):
    """A U-Net in TorchScript: two convolutions a level, pooling down, transposed convolutions up."""
    import torch
    from torch import nn

    convolution, up, pool = (getattr(nn, f"{name}{dimensions}d") for name in ("Conv", "ConvTranspose", "MaxPool"))

    def block(before, after):
        layers = []
        for channels in (before, after):
            layers += [convolution(channels, after, 3, padding=1), nn.ReLU()]
        return nn.Sequential(*layers)

    class Level(nn.Module):
        def __init__(self, width, deeper, inner):
            super().__init__()
            self.down, self.inner, self.up, self.join = pool(2), inner, up(deeper, width, 2, stride=2), block(2 * width, width)

        def forward(self, values):
            return self.join(torch.cat([values, self.up(self.inner(self.down(values)))], 1))

    torch.manual_seed(1)
    net = block(widths[-2], widths[-1])
    for at in range(len(widths) - 2, -1, -1):
        before = inputs if at == 0 else widths[at - 1]
        net = nn.Sequential(block(before, widths[at]), Level(widths[at], widths[at + 1], net))
    return torch.jit.script(nn.Sequential(net, convolution(widths[0], classes, 1)).eval())


def write_item(folder, case, side):
    """A PNG or a NIfTI of noise: written here, since the machine may have no library for it."""
    values = bytes(zlib.adler32(bytes([i % 251, i // 251 % 251])) % 256 for i in range(3 * side)) * side
    if case == "picture":

        def chunk(kind, data):
            return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

        rows = b"".join(b"\0" + values[3 * side * y : 3 * side * (y + 1)] for y in range(side))
        header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
        file = folder / "item.png"
        file.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 1)) + chunk(b"IEND", b""))
        return file
    header = bytearray(352)
    struct.pack_into("<i", header, 0, 348)
    struct.pack_into("<8h", header, 40, 3, side, side, side, 1, 1, 1, 1)
    struct.pack_into("<2h", header, 70, 2, 8)  # bytes
    struct.pack_into("<8f", header, 76, 1, 1, 1, 1, 1, 0, 0, 0)
    struct.pack_into("<f", header, 108, 352)
    header[344:348] = b"n+1\0"
    file = folder / "item.nii"
    file.write_bytes(header + (values * side)[: side**3])
    return file


def package_of(folder, case, roi, classes, widths):
    """Written here, since the exporters need more libraries than PyTorch."""
    package = folder / "net.pkg"
    package.mkdir()
    volume = case == "volume"
    net = u_net(3 if volume else 2, 1 if volume else 3, classes, widths)
    net.save(str(package / "model.ts"))
    digest = hashlib.sha256((package / "model.ts").read_bytes()).hexdigest()
    kind = f"depth: {roi}, axes: xyz, scale: 0.0039, mean: [0], std: [1]" if volume else "colour: rgb, scale: 0.0039, mean: [0, 0, 0], std: [1, 1, 1]"
    names = ", ".join(f"class {number}" for number in range(classes))
    (package / "model.yaml").write_text(
        f"schema: 1\nname: u_net\ntask: semantic\narchitecture: U-Net with seeded weights\ninput: {{width: {roi}, height: {roi}, {kind}}}\n"
        f"output: {{channels: {classes}, activation: softmax}}\nclasses: [{names}]\nmax_batch: 64\nlicence: none\nfiles: {{model.ts: {digest}}}\n")
    return package


def bare_ms(words, folder, rows):
    """Milliseconds of a window in a bare call of so many windows."""
    file = folder / "profile.json"
    done, _ = run(BUNDLE / "bin/millrace", "profile", *words, "--batches", str(rows), "--seconds", str(Session.few(3, 0.1)), "--json", file)
    if done.returncode != 0:
        raise Failed(done.stderr[-800:] or f"exit code {done.returncode}")
    (row,) = json.loads(file.read_text())["rows"]
    if row["size"] != rows:
        raise Failed(f"the profile has calls of {row['size']}, not {rows}")
    return row["ms_each"]


def measured(case):
    roi, side, classes, widths, copies, goal = (SMALL if Session.rehearsal else CASES)[case]
    with scratch() as folder:
        folder = Path(folder)
        item = write_item(folder, case, side)
        package = package_of(folder, case, roi, classes, widths)
        (folder / "windows.yaml").write_text(RECIPE)
        (folder / "m.jsonl").write_text((json.dumps({"path": str(item)}) + "\n") * copies)
        rows = Session.few(16, 2)
        settings = (f"semantic.model={package}", f"semantic.window_batch={rows}", "tiles.overlap=0.5" if case == "picture" else "tiles.overlap=0.25")
        words = [folder / "windows.yaml", "--input", folder / "m.jsonl", "--device", Session.device, *(word for one in settings for word in ("--set", one))]
        times, calls, lane = {}, {}, {}
        for source in ("files", "memory") if case == "picture" else ("files",):
            times[source] = []
            for repeat in range(Session.few(3, 1)):
                out = folder / f"out-{source}-{repeat}"
                done, report, _ = millrace(out, *words, "--source", source)
                if done.returncode != 0:
                    raise Failed(done.stderr[-800:] or f"exit code {done.returncode}")
                times[source].append(1000 / report["run_window"]["pictures_per_s"])
                calls, lane = report["calls"], lane_of(report)
        bare = bare_ms(words, folder, rows)
    each = calls["windows"] / copies
    best = statistics.median(times[source])
    return {"ms": best, "ms_by_source": {source: [statistics.median(some), min(some), max(some)] for source, some in times.items()}, "goal_ms": goal,
            "windows": each, "window_batch": rows, "bare_ms_a_window": bare, "times_bare": best / (each * bare), "lanes": lane["concurrency"], "calls": calls}
