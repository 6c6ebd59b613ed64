"""The folder of the exporters, whose code some parts use: in the bundle, or in the sources."""

from pathlib import Path

HERE = Path(__file__).resolve().parent
EXPORTERS = next(folder for folder in (HERE / "share/millrace/export", HERE.parents[1] / "models/export") if folder.is_dir())
