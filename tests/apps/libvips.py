"""libvips of the formats set, called through ctypes: writes and reads TIFFs with levels."""

import ctypes
import functools

import numpy
import program


@functools.cache
def _library():
    (file,) = (program.require_formats() / "pyvips_binary.libs").glob("libvips-*")
    vips = ctypes.CDLL(str(file))
    vips.vips_image_new_from_memory_copy.restype = vips.vips_image_new_from_file.restype = ctypes.c_void_p
    vips.vips_image_write_to_memory.restype = ctypes.c_void_p
    vips.vips_error_buffer.restype = ctypes.c_char_p
    assert vips.vips_init(b"millrace") == 0
    vips.vips_cache_set_max(0)  # libvips would keep the pixels of a file that a test writes again
    return vips


def _checked(good):
    if not good:
        raise RuntimeError(_library().vips_error_buffer().decode())


def write(path, pixels, options):
    """Writes uint8 [height, width, bands] as a file; `options` are those of tiffsave, such as "tile,pyramid"."""
    vips, data = _library(), numpy.ascontiguousarray(pixels)
    height, width, bands = data.shape
    # 0: numbers of 8 bits without a sign
    image = ctypes.c_void_p(vips.vips_image_new_from_memory_copy(data.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(data.nbytes), width, height, bands, 0))
    _checked(image)
    _checked(vips.vips_image_write_to_file(image, f"{path}[{options}]".encode(), None) == 0)
    vips.g_object_unref(image)


def read(path, page=0, last_rows=None):
    """A page of a file, or only its last rows: uint8 [height, width, bands]."""
    vips, size = _library(), ctypes.c_size_t()
    image = ctypes.c_void_p(vips.vips_image_new_from_file(f"{path}[page={page}]".encode(), None))
    _checked(image)
    if last_rows is not None:
        whole, image = image, ctypes.c_void_p()
        width, height = vips.vips_image_get_width(whole), vips.vips_image_get_height(whole)
        _checked(vips.vips_crop(whole, ctypes.byref(image), 0, max(height - last_rows, 0), width, min(last_rows, height), None) == 0)
        vips.g_object_unref(whole)
    shape = [getattr(vips, f"vips_image_get_{side}")(image) for side in ("height", "width", "bands")]
    data = ctypes.c_void_p(vips.vips_image_write_to_memory(image, ctypes.byref(size)))
    _checked(data)
    pixels = numpy.frombuffer(ctypes.string_at(data, size.value), numpy.uint8).reshape(shape)
    vips.g_free(data)
    vips.g_object_unref(image)
    return pixels


def pages(path):
    """The number of pages of a file."""
    vips = _library()
    image = ctypes.c_void_p(vips.vips_image_new_from_file(str(path).encode(), None))
    _checked(image)
    count = vips.vips_image_get_n_pages(image)
    vips.g_object_unref(image)
    return count
