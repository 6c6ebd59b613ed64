"""Plants one violation of every rule in a small tree and sees that tools/check_includes.py finds each, and nothing else."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

CHECK = pathlib.Path(__file__).resolve().parents[2] / "tools" / "check_includes.py"

GOOD = {
    "base/trace.hpp": "#pragma once\n",
    "base/tensor.hpp": "#pragma once\n#include <vector>\n",
    "io/input/item.hpp": "#pragma once\n",
    "io/decode/decode.cpp": '#include "io/input/item.hpp"\n#include <opencv2/core.hpp>\n#include <jpeglib.h>\n',
    "pipeline/graph.hpp": '#pragma once\n#include <tbb/flow_graph.h>\n#include "base/trace.hpp"\n',
    "models/engine.hpp": '#pragma once\n#include "base/tensor.hpp"\n',
    "models/engines/torch/torch_engine.cpp": '#include <torch/script.h>\n#include <ATen/ops/zeros.h>\n#include "models/engine.hpp"\n',
    "stages/detect.cpp": '#include "models/engine.hpp"\n#include "io/input/item.hpp"\n#include "pipeline/graph.hpp"\n',
    "apps/main.cpp": '#include <boost/program_options.hpp>\n#include "stages/detect.cpp"\n',
    "bench/masks.cpp": '#include <opencv2/core.hpp>\n#include "io/input/item.hpp"\n',
    "tests/reference.hpp": "#pragma once\n",
    "tests/gpu/parity.cpp": '#include "models/engine.hpp"\n',
    "tests/pipeline/graph_test.cpp": '#include "pipeline/graph.hpp"\n#include "tests/reference.hpp"\n#include <opencv2/imgproc.hpp>\n',
}

# file, content, line of the violation, words that name the rule
PLANTED = [
    ("io/up.cpp", '#include <string>\n#include "stages/detect.cpp"\n', 2, "io/ may include"),
    ("io/sideways.cpp", '#include "base/tensor.hpp"\n', 1, "io/ may include"),
    ("models/sideways.cpp", '#include "pipeline/graph.hpp"\n', 1, "models/ may include"),
    ("pipeline/model.cpp", '#include "models/engine.hpp"\n', 1, "pipeline/ may include"),
    ("pipeline/more.cpp", '#include "base/tensor.hpp"\n', 1, "handles only"),
    ("stages/up.cpp", '#include "apps/main.cpp"\n', 1, "stages/ may include"),
    ("stages/graph.cpp", "#include <tbb/flow_graph.h>\n", 1, "TBB"),
    ("io/parallel.cpp", "#include <oneapi/tbb/parallel_for.h>\n", 1, "TBB"),
    ("models/package.cpp", "#include <ATen/core/Tensor.h>\n", 1, "LibTorch"),
    ("stages/tensor.cpp", "#include <c10/core/Device.h>\n", 1, "LibTorch"),
    ("models/all.cpp", "\n\n#include <torch/torch.h>\n", 3, "torch/torch.h"),
    ("stages/resize.cpp", "#include <opencv2/imgproc.hpp>\n", 1, "OpenCV"),
    ("stages/copy.cpp", "#  include <cuda_runtime.h>\n", 1, "CUDA"),
    ("io/options.cpp", "#include <boost/program_options.hpp>\n", 1, "Boost"),
    ("io/relative.cpp", '#include "item.hpp"\n', 1, "written from the root"),
    ("io/dots.cpp", '#include "../io/input/item.hpp"\n', 1, "written from the root"),
    ("io/angle.cpp", "#include <io/input/item.hpp>\n", 1, "includes of ours are written"),
    ("io/twice.hpp", "struct Twice {};\n", 1, "#pragma once"),
    ("stages/from_tests.cpp", '#include "tests/reference.hpp"\n', 1, "only tests"),
    ("tests/io/torch_test.cpp", "#include <torch/torch.h>\n", 1, "torch/torch.h"),
]


def check(files):
    """Writes the files and returns (exit code, lines of output)."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            path = pathlib.Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        done = subprocess.run([sys.executable, CHECK, folder], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout.splitlines()


class CheckIncludes(unittest.TestCase):
    def test_a_good_tree_passes(self):
        self.assertEqual(check(GOOD), (0, []))

    def test_each_planted_violation_is_found_alone(self):
        for name, content, line, words in PLANTED:
            with self.subTest(name):
                code, output = check({**GOOD, name: content})
                self.assertEqual(code, 1)
                self.assertEqual(len(output), 1, output)
                self.assertTrue(output[0].startswith(f"{name}:{line}: "), output)
                self.assertIn(words, output[0])


if __name__ == "__main__":
    unittest.main()
