"""Damaged, odd and malicious picture files, with the result that docs/pictures.md states for each."""

import io
import random
import struct
import zlib
from dataclasses import dataclass
from typing import Optional

import numpy
from PIL import Image

from program import raster

WIDTH, HEIGHT = 96, 64
PIXELS = raster(WIDTH, HEIGHT, seed=7)
PICTURE = Image.fromarray(PIXELS)


@dataclass
class HostileFile:
    """A file and its expected result.

    It fails with `reason`. If `reason` is None, it is decoded, to `pixels` (RGB) if given.
    """

    name: str
    data: bytes
    reason: Optional[str] = None
    says: str = ""  # a part of the line's "detail"
    size: tuple = (WIDTH, HEIGHT)  # width, height as displayed
    pixels: Optional[numpy.ndarray] = None
    warns: bool = False


def saved(image, form, **options):
    memory = io.BytesIO()
    image.save(memory, form, **options)
    return memory.getvalue()


def rgb(image):
    return numpy.asarray(image.convert("RGB"))


# --- parts of files

JPEG = saved(PICTURE, "JPEG", quality=92, subsampling=0)
JPEG_LARGE = saved(Image.fromarray(raster(640, 480, seed=3)), "JPEG", quality=90)
PROGRESSIVE = saved(Image.fromarray(raster(640, 480, seed=3)), "JPEG", quality=90, progressive=True)


def jpeg_frame(data):
    """The offset of a JPEG's frame header (SOF)."""
    at = 2
    while data[at + 1] not in (0xC0, 0xC1, 0xC2):
        at += 2 + struct.unpack(">H", data[at + 2 : at + 4])[0]
    return at


def jpeg_with(data, width=None, height=None, precision=None, marker=None):
    """The JPEG with false values in its frame header."""
    at, patched = jpeg_frame(data), bytearray(data)
    if marker is not None:
        patched[at + 1] = marker
    if precision is not None:
        patched[at + 4] = precision
    if height is not None:
        patched[at + 5 : at + 9] = struct.pack(">HH", height, width)
    return bytes(patched)


def flipped(data, count, seed):
    """The data with all bits of `count` bytes of its middle half flipped."""
    bent, place = bytearray(data), random.Random(seed)
    for _ in range(count):
        bent[place.randrange(len(data) // 4, 3 * len(data) // 4)] ^= 0xFF
    return bytes(bent)


def jpeg_of_many_scans(scans):
    """A progressive JPEG that repeats its first scan.

    The scan sends all bits at once, so that repeating it is allowed.
    """
    data = saved(PICTURE.resize((16, 16)), "JPEG", quality=90, progressive=True)
    first = data.index(b"\xff\xda")
    bits = first + 2 + data[first + 3] - 1  # the last byte of the scan's header: which bits it sends
    scan = data[first:bits] + b"\0" + data[bits + 1 : data.index(b"\xff", bits)]
    return data[:first] + scan * scans + b"\xff\xd9"


def chunk(kind, payload):
    return struct.pack(">I", len(payload)) + kind + payload + struct.pack(">I", zlib.crc32(kind + payload))


def png(width, height, depth, colour, data, extra=b"", interlace=0):
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlace)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + extra + chunk(b"IDAT", data) + chunk(b"IEND", b"")


PASSES = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]  # x, y, steps


def interlaced_png(pixels):
    data = b""
    for x, y, step_x, step_y in PASSES:
        for row in pixels[y::step_y, x::step_x]:
            data += b"\0" + row.tobytes()
    return png(pixels.shape[1], pixels.shape[0], 8, 2, zlib.compress(data), interlace=1)


def zeros_compressed(count):
    """`count` zero bytes compressed by zlib, made in small blocks."""
    packer, packed, block = zlib.compressobj(9), b"", bytes(1 << 20)
    for _ in range(count >> 20):
        packed += packer.compress(block)
    return packed + packer.compress(bytes(count & ((1 << 20) - 1))) + packer.flush()


def black_interlaced_png(side):
    """A small PNG of `side` x `side` pixels of one bit, interlaced: its rows are in seven passes."""
    count = sum(len(range(y, side, step_y)) * (1 + (len(range(x, side, step_x)) + 7) // 8) for x, y, step_x, step_y in PASSES)
    return png(side, side, 1, 0, zeros_compressed(count), interlace=1)


def exif(orientation, kept=None):
    block = b"Exif\0\0MM\0*\0\0\0\x08" + struct.pack(">HHHIHHI", 1, 0x0112, 3, 1, orientation, 0, 0)
    return block[:kept]


def oriented(pixels, orientation):
    """The pixels that a camera stores with this orientation mark, so that viewers show `pixels`."""
    return {1: lambda p: p, 2: lambda p: p[:, ::-1], 3: lambda p: p[::-1, ::-1], 4: lambda p: p[::-1], 5: lambda p: p.swapaxes(0, 1),
            6: lambda p: numpy.rot90(p, 1), 7: lambda p: p[::-1, ::-1].swapaxes(0, 1), 8: lambda p: numpy.rot90(p, -1)}[orientation](pixels)


def tiff(entries, next_directory=0, data=b"", count=None):
    """A little-endian TIFF of one directory; entries are (tag, type, count, value)."""
    body = b"".join(struct.pack("<HHII", *entry) for entry in entries)
    return b"II*\0" + struct.pack("<IH", 8, len(entries) if count is None else count) + body + struct.pack("<I", next_directory) + data


def float_tiff():
    return saved(Image.fromarray(numpy.ones((8, 8), numpy.float32)), "TIFF")


# --- the table

def catalogue():
    """All files. The labels A3 and C1 to C8 group them by fault."""
    files = []

    def fails(name, data, reason, says=""):
        files.append(HostileFile(name, data, reason, says))

    def decodes(name, data, pixels=PIXELS, size=None, warns=False):
        size = size or ((pixels.shape[1], pixels.shape[0]) if pixels is not None else (WIDTH, HEIGHT))
        files.append(HostileFile(name, data, size=size, pixels=pixels, warns=warns))

    large = rgb(Image.open(io.BytesIO(JPEG_LARGE)))

    # A3: ordinary damage, false sizes and odd colours
    fails("cut_half.jpg", JPEG_LARGE[: len(JPEG_LARGE) // 2], "truncated", "of 480 rows")
    fails("flipped.jpg", flipped(JPEG_LARGE, 20, 1), "corrupt_data", "near row")
    fails("cut_half_progressive.jpg", PROGRESSIVE[: len(PROGRESSIVE) // 2], "truncated", "of 480 rows")
    decodes("no_end_marker.jpg", JPEG_LARGE[:-2], large, warns=True)
    decodes("trailing.jpg", JPEG_LARGE + random.Random(2).randbytes(5120), large)
    fails("claims_30000.jpg", jpeg_with(JPEG_LARGE, 30000, 30000), "too_large", "30000 x 30000")
    fails("claims_65500.jpg", jpeg_with(JPEG_LARGE, 65500, 65500), "too_large", "65500 x 65500")
    fails("real_20000.png", png(20000, 20000, 1, 0, zeros_compressed(20000 * 2501)), "too_large", "20000 x 20000")
    fails("claims_50000.png", png(50000, 50000, 8, 2, zlib.compress(b"")), "too_large", "50000 x 50000")
    whole = saved(PICTURE, "PNG")
    fails("cut.png", whole[: len(whole) // 2], "truncated")
    at = whole.index(b"IDAT") + 4
    fails("bad_crc.png", whole[:-13] + bytes([whole[-13] ^ 1]) + whole[-12:], "corrupt_data", "checksum")
    fails("zero_bytes.jpg", b"", "empty", "no bytes")
    fails("page.jpg", b"<!DOCTYPE html><html><body>404 Not Found</body></html>", "not_an_image", "HTML")
    decodes("png_named.jpg", whole)
    cmyk = PICTURE.convert("CMYK")
    decodes("cmyk.jpg", saved(cmyk, "JPEG", quality=95), rgb(cmyk))
    grey16 = numpy.arange(WIDTH * HEIGHT, dtype=numpy.uint32).reshape(HEIGHT, WIDTH) * 65535 // (WIDTH * HEIGHT - 1)
    decodes("grey16.png", saved(Image.fromarray(grey16.astype(numpy.uint16)), "PNG"), numpy.repeat((grey16 + 128)[..., None] // 257, 3, 2))
    alpha = numpy.linspace(0, 255, WIDTH).astype(numpy.uint8)[None].repeat(HEIGHT, 0)
    on_white = (PIXELS * (alpha[..., None] / 255) + 255 - alpha[..., None]).round().astype(numpy.uint8)
    transparent = Image.fromarray(numpy.dstack([PIXELS, alpha]))
    decodes("rgba.png", saved(transparent, "PNG"), on_white)
    fails("float.tif", float_tiff(), "unsupported_format", "floating-point")
    fails("still.gif", saved(PICTURE.convert("P"), "GIF"), "unsupported_format", "GIF")

    # C1: not a picture, or another format than the name says
    fails("text.png", b"not a picture at all\n", "not_an_image", "plain text")
    fails("random.jpg", b"\x01" + random.Random(5).randbytes(4000), "not_an_image", "unknown binary data")
    fails("zeros.jpg", bytes(70000), "not_an_image", "zero bytes only")
    fails("pointer.jpg", b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 1\n", "not_an_image", "git lfs pull")
    fails("answer.jpeg", b'{"error": "forbidden"}', "not_an_image", "JSON")
    fails("archive.png", b"PK\x03\x04" + bytes(40), "not_an_image", "ZIP")
    decodes("jpeg_named.tiff", JPEG)

    # C2: cut off
    for tenth in range(1, 10):
        fails(f"cut_{tenth}.jpg", JPEG_LARGE[: len(JPEG_LARGE) * tenth // 10], "truncated")
        fails(f"cut_progressive_{tenth}.jpg", PROGRESSIVE[: len(PROGRESSIVE) * tenth // 10], "truncated")
    fails("two_bytes.jpg", JPEG[:2], "truncated", "header")
    fails("header_only.jpg", JPEG_LARGE[: jpeg_frame(JPEG_LARGE) + 6], "truncated", "header")
    decodes("no_end_marker_progressive.jpg", PROGRESSIVE[:-2], rgb(Image.open(io.BytesIO(PROGRESSIVE))), warns=True)

    # C3: damaged content
    fails("bent.png", whole[: at + 9] + bytes([whole[at + 9] ^ 0x40]) + whole[at + 10 :], "corrupt_data")
    fails("bent.webp", saved(PICTURE, "WEBP", lossless=True)[:60] + bytes(400), "truncated")

    # C4: colours, depths and formats
    decodes("grey.jpg", saved(PICTURE.convert("L"), "JPEG", quality=95), rgb(PICTURE.convert("L")))
    decodes("grey_alpha.png", saved(Image.merge("LA", (PICTURE.convert("L"), Image.fromarray(alpha))), "PNG"),
            (rgb(PICTURE.convert("L")) * (alpha[..., None] / 255) + 255 - alpha[..., None]).round().astype(numpy.uint8))
    palette = PICTURE.quantize(64)
    decodes("palette.png", saved(palette, "PNG"), rgb(palette))
    indices, see_through = numpy.asarray(palette), rgb(palette).copy()
    see_through[indices == 5] = 255
    decodes("palette_transparent.png", saved(palette, "PNG", transparency=5), see_through)
    one_bit = PICTURE.convert("1", dither=Image.Dither.NONE)
    decodes("one_bit.png", saved(one_bit, "PNG"), rgb(one_bit))
    deep = PIXELS.astype(">u2") * 257
    rows = b"".join(b"\0" + row.tobytes() for row in deep)
    decodes("rgb16.png", png(WIDTH, HEIGHT, 16, 2, zlib.compress(rows)))
    decodes("interlaced.png", interlaced_png(PIXELS))
    large_rows = raster(700, 600, seed=4)  # 1.2 MB without compression: in data chunks of 64 KB, and in one chunk
    decodes("large.png", saved(Image.fromarray(large_rows), "PNG", compress_level=0), large_rows)
    decodes("large_chunk.png", png(700, 600, 8, 2, zlib.compress(b"".join(b"\0" + row.tobytes() for row in large_rows), 0)), large_rows)
    fails("twelve_bit.jpg", jpeg_with(JPEG, precision=12, marker=0xC1), "unsupported_format")
    fails("lossless.jpg", jpeg_with(JPEG, marker=0xC3), "unsupported_format")
    decodes("profile.jpg", saved(PICTURE, "JPEG", quality=92, subsampling=0, icc_profile=random.Random(9).randbytes(3000)))
    decodes("picture.bmp", saved(PICTURE, "BMP"))
    decodes("picture.tif", saved(PICTURE, "TIFF"))
    decodes("picture.ppm", saved(PICTURE, "PPM"))
    decodes("picture.webp", saved(PICTURE, "WEBP", lossless=True))
    decodes("picture.jp2", saved(PICTURE, "JPEG2000", irreversible=False))
    fails("photo.heic", struct.pack(">I", 24) + b"ftypheic" + bytes(200), "unsupported_format", "HEIC")
    fails("photo.avif", saved(PICTURE, "AVIF"), "unsupported_format", "AVIF")

    # C5: orientation marks
    for orientation in range(1, 9):
        stored = Image.fromarray(numpy.ascontiguousarray(oriented(PIXELS, orientation)))
        decodes(f"turned_{orientation}.jpg", saved(stored, "JPEG", quality=95, subsampling=0, exif=exif(orientation)))
    for orientation in (0, 9, 65535):
        decodes(f"turned_{orientation}.jpg", saved(PICTURE, "JPEG", quality=95, subsampling=0, exif=exif(orientation)))
    decodes("exif_cut.jpg", saved(PICTURE, "JPEG", quality=95, subsampling=0, exif=exif(6, 20)))

    # C6: decompression bombs and false sizes
    fails("many_scans.jpg", jpeg_of_many_scans(10_000), "too_large", "scans")
    bomb = chunk(b"zTXt", b"Comment\0\0" + zeros_compressed(1 << 28))
    profile = chunk(b"iCCP", b"profile\0\0" + zeros_compressed(1 << 28))
    body = zlib.compress(b"".join(b"\0" + row.tobytes() for row in PIXELS))
    decodes("text_bomb.png", png(WIDTH, HEIGHT, 8, 2, body, bomb))
    decodes("profile_bomb.png", png(WIDTH, HEIGHT, 8, 2, body, profile))
    fails("claims_2147483647.png", png(0x7FFFFFFF, 0x7FFFFFFF, 16, 6, zlib.compress(b"")), "too_large")
    fails("claims_0.png", png(0, 10, 8, 2, zlib.compress(b"")), "corrupt_data")
    fails("long_idat.png", png(60000, 4000, 8, 2, zeros_compressed(1 << 26)), "truncated")
    strip = [(256, 4, 1, 8), (257, 4, 1, 8), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1), (273, 4, 1, 0), (277, 3, 1, 1), (278, 4, 1, 8),
             (279, 4, 1, 64)]
    data_at = 8 + 2 + 12 * len(strip) + 4
    strip[5] = (273, 4, 1, data_at)
    grey = bytes(range(0, 256, 4))
    looped = numpy.repeat(numpy.frombuffer(grey, numpy.uint8).reshape(8, 8, 1), 3, 2)
    decodes("directory_loop.tif", tiff(strip, 8, grey), looped, warns=True)
    fails("many_strips.tif", tiff([(256, 4, 1, 8), (257, 4, 1, 8), (273, 4, 0x7FFFFFFF, 8), (279, 4, 0x7FFFFFFF, 8)]), "truncated")
    fails("many_entries.tif", tiff([(256, 4, 1, 8)], count=0xFFFF), "truncated")
    fails("claims_100000.tif", tiff([(256, 4, 1, 99999), (257, 4, 1, 99999), *strip[2:]], 0, grey), "too_large")
    fails("claims_16384.webp", saved(PICTURE, "WEBP", lossless=True)[:21] + b"\xff\xff\xff\x0f", "truncated")
    fails("claims_2147483647.bmp", saved(PICTURE, "BMP")[:18] + struct.pack("<ii", 0x7FFFFFFF, 0x7FFFFFFF) + saved(PICTURE, "BMP")[26:], "too_large")
    fails("claims_99999.ppm", b"P6\n99999 99999\n255\n" + bytes(300), "too_large")

    # C7: extreme shapes
    for width, height in ((1, 1), (1, 3000), (3000, 1), (32767, 1), (65500, 2), (2, 65500)):
        narrow = numpy.full((height, width, 3), (200, 60, 90), numpy.uint8)
        decodes(f"narrow_{width}x{height}.jpg", saved(Image.fromarray(narrow), "JPEG", quality=95), None, (width, height))

    # C8: several pictures in one file
    second = Image.fromarray(PIXELS[::-1].copy())
    decodes("animated.webp", saved(PICTURE, "WEBP", save_all=True, append_images=[second], lossless=True), warns=True)
    fails("animated.gif", saved(PICTURE.convert("P"), "GIF", save_all=True, append_images=[second.convert("P")]), "unsupported_format", "GIF")
    decodes("animated.png", saved(PICTURE, "PNG", save_all=True, append_images=[second]), warns=True)
    decodes("two_pages.tif", saved(PICTURE, "TIFF", save_all=True, append_images=[second]), warns=True)
    return files


def png_with_orientation(pixels, orientation):
    """A PNG with an orientation mark."""
    return saved(Image.fromarray(numpy.ascontiguousarray(oriented(pixels, orientation))), "PNG", exif=exif(orientation))
