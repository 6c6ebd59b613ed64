"""Writes DICOM series with pydicom, for tests of the program. The formats set must be importable."""

import struct

import numpy

# Directions of rows and of columns: two that are not along the axes of the patient.
OBLIQUE = ((0.8, 0.6, 0.0), (-0.36, 0.48, 0.8))
AXIAL = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0))
SPACING = (0.7, 0.5)  # between rows, between columns


def jpeg_lossless(pixels, bits):
    """A lossless JPEG (process 14, predictor 1) of unsigned numbers [row, column]."""
    height, width = pixels.shape
    head = b"\xff\xd8" + b"\xff\xc4" + struct.pack(">HB16B17B", 36, 0, *(17 if length == 5 else 0 for length in range(1, 17)), *range(17))
    head += b"\xff\xc3" + struct.pack(">HBHHB3B", 11, bits, height, width, 1, 1, 0x11, 0) + b"\xff\xda" + struct.pack(">HB2B3B", 8, 1, 1, 0, 1, 0, 0)
    text = []
    for y in range(height):
        for x in range(width):
            before = pixels[y, x - 1] if x else pixels[y - 1, 0] if y else 1 << (bits - 1)
            difference = (int(pixels[y, x]) - int(before) + 0x8000) % 0x10000 - 0x8000
            size = 16 if difference == -0x8000 else abs(difference).bit_length()
            text.append(f"{size:05b}")
            if 0 < size < 16:
                text.append(f"{difference if difference > 0 else difference + (1 << size) - 1:0{size}b}")
    joined = "".join(text)
    joined += "1" * (-len(joined) % 8)
    data = bytes(int(joined[i : i + 8], 2) for i in range(0, len(joined), 8))
    return head + data.replace(b"\xff", b"\xff\x00") + b"\xff\xd9"


def fragments(dataset, syntax, data):
    """Gives a data set compressed pixels."""
    from pydicom.encaps import encapsulate

    dataset.file_meta.TransferSyntaxUID = syntax
    dataset.PixelData = encapsulate([data])
    dataset["PixelData"].VR = "OB"
    dataset["PixelData"].is_undefined_length = True


def normal(directions=AXIAL):
    return numpy.cross(*directions)


def dataset(pixels, position, directions=AXIAL, series="1.2.3.4", slope=None, intercept=None, stored=None, spacing=SPACING):
    """A slice of the stored numbers `pixels` [row, column]. Its first pixel is at `position`."""
    from pydicom.dataset import FileDataset, FileMetaDataset
    from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, generate_uid

    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID = CTImageStorage, generate_uid()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    one = FileDataset("", {}, file_meta=meta, preamble=b"\0" * 128)
    one.SOPClassUID, one.SOPInstanceUID, one.Modality, one.SeriesInstanceUID = CTImageStorage, meta.MediaStorageSOPInstanceUID, "CT", series
    one.ImagePositionPatient = [f"{value:.10g}" for value in position]
    one.ImageOrientationPatient = [f"{value:.10g}" for direction in directions for value in direction]
    one.PixelSpacing = list(spacing)
    one.SliceThickness = 4
    one.Rows, one.Columns = pixels.shape
    one.SamplesPerPixel, one.PhotometricInterpretation = 1, "MONOCHROME2"
    one.BitsAllocated = pixels.dtype.itemsize * 8
    one.BitsStored = stored or one.BitsAllocated
    one.HighBit = one.BitsStored - 1
    one.PixelRepresentation = int(pixels.dtype.kind == "i")
    if slope is not None:
        one.RescaleSlope, one.RescaleIntercept = slope, intercept
    one.PixelData = pixels.tobytes() + b"\0" * (pixels.nbytes % 2)
    one["PixelData"].VR = "OW" if pixels.dtype.itemsize > 1 else "OB"
    return one


def series(voxels, step=2.5, directions=AXIAL, origin=(-10.5, 20.25, 30.0), **options):
    """Slices of stored numbers [slice, row, column]. The next one is `step` mm further along the normal."""
    return [dataset(one, numpy.array(origin) + number * step * normal(directions), directions, **options) for number, one in enumerate(voxels)]


def write(folder, slices, seed=0):
    """Writes the slices under shuffled names, with shuffled InstanceNumber. Returns their paths in the order of `slices`."""
    folder.mkdir(parents=True, exist_ok=True)
    random = numpy.random.default_rng(seed)
    paths = [folder / f"IM{number:03}.dcm" for number in random.permutation(len(slices))]
    for one, path, number in zip(slices, paths, random.permutation(len(slices))):
        one.InstanceNumber = str(number)
        one.save_as(path, enforce_file_format=True)
    return paths


def affine(folder):
    """The affine of a series for NIfTI, and its spacing [x, y, z], from the tags that pydicom reads."""
    import pydicom

    found = [pydicom.dcmread(path) for path in folder.glob("*.dcm")]
    along, down = (numpy.array([float(value) for value in found[0].ImageOrientationPatient[begin : begin + 3]]) for begin in (0, 3))
    positions = sorted(([float(value) for value in one.ImagePositionPatient] for one in found), key=lambda place: numpy.dot(place, numpy.cross(along, down)))
    step = numpy.cross(along, down) * float(found[0].SliceThickness) if len(found) == 1 else (numpy.array(positions[-1]) - positions[0]) / (len(found) - 1)
    rows, columns = (float(value) for value in found[0].PixelSpacing)
    result = numpy.eye(4)
    result[:3] = numpy.stack([along * columns, down * rows, step, positions[0]], 1)
    result[:2] *= -1  # DICOM: to the left and to the back; NIfTI: to the right and to the front
    return result, (columns, rows, float(numpy.linalg.norm(step)))
