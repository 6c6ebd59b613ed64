"""Reads and shrinks pictures in Python with OpenCV or, if it is not installed, with Pillow.

torchvision would be no third way, since it needs Pillow.
"""

import numpy as np

try:
    import cv2

    name = f"cv2 {cv2.__version__}"

    def read(path):
        """The picture's pixels, RGB."""
        pixels = cv2.imread(str(path))
        if pixels is None:
            raise OSError(f"cannot read {path}")
        return cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB)

    def bilinear(pixels, rows, columns):
        return cv2.resize(pixels, (columns, rows), interpolation=cv2.INTER_LINEAR)

    def averaged(pixels, rows, columns):
        return cv2.resize(pixels, (columns, rows), interpolation=cv2.INTER_AREA)

    def one_thread():
        """Limits OpenCV to one thread, for scripts that have many workers."""
        cv2.setNumThreads(0)

except ImportError as no_opencv:
    try:
        import PIL
        from PIL import Image
    except ImportError as no_pillow:
        raise ImportError(f"neither OpenCV nor Pillow can be imported; install one of them: {no_opencv}; {no_pillow}") from None

    name = f"Pillow {PIL.__version__}"

    def read(path):
        with Image.open(path) as picture:
            return np.asarray(picture.convert("RGB"))

    def resized(pixels, rows, columns, how):
        return np.asarray(Image.fromarray(pixels).resize((columns, rows), how))

    def bilinear(pixels, rows, columns):
        return resized(pixels, rows, columns, Image.Resampling.BILINEAR)

    def averaged(pixels, rows, columns):
        return resized(pixels, rows, columns, Image.Resampling.BOX)

    def one_thread():
        pass
