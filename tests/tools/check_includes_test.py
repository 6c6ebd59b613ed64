"""Plants one violation of every rule in a small tree.

Checks that tools/check_includes.py finds this violation and nothing else.
"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

CHECK = pathlib.Path(__file__).resolve().parents[2] / "tools" / "check_includes.py"
sys.path.insert(0, str(CHECK.parent))

import check_includes  # noqa: E402

GOOD = {
    "base/trace.hpp": "#pragma once\n",
    "base/trace.cpp": '#include "base/trace.hpp"\n#include <nvtx3/nvToolsExt.h>\n',
    "base/tensor.hpp": "#pragma once\n#include <vector>\n",
    "base/json.hpp": "#pragma once\n#include <nlohmann/json.hpp>\n",
    "gpu/device.hpp": '#pragma once\n#include "base/tensor.hpp"\n',
    "gpu/streams/stream.cu": '#include "gpu/device.hpp"\n#include <cuda_runtime.h>\n#include <cub/cub.cuh>\n#include <nvtx3/nvToolsExtCudaRt.h>\n',
    "io/files/files.hpp": '#pragma once\n#include "base/tensor.hpp"\n',
    "io/input/item.hpp": '#pragma once\n#include "io/files/files.hpp"\n',
    "io/decode/decode.hpp": "#pragma once\n",
    "io/decode/imgcodecs_plugin.cpp": '#include <opencv2/imgcodecs.hpp>\n',
    "stages/opencv/sharpness.cpp": "#include <opencv2/imgproc.hpp>\n",
    "io/sinks/overlay_text.hpp": '#pragma once\n#include <opencv2/core/mat.hpp>\n',
    "io/decode/decode.cpp": '#include "io/decode/decode.hpp"\n#include "io/files/files.hpp"\n#include <jpeglib.h>\n',
    "io/results/plan.hpp": '#pragma once\n#include "io/input/item.hpp"\n#include "io/decode/decode.hpp"\n',
    "io/sinks/coco.hpp": '#pragma once\n#include "io/results/plan.hpp"\n#include "io/decode/decode.hpp"\n',
    "pipeline/graph.hpp": '#pragma once\n#include <tbb/flow_graph.h>\n#include <oneapi/tbb.h>\n#include "base/trace.hpp"\n',
    "models/engine.hpp": '#pragma once\n#include "base/tensor.hpp"\n#include "gpu/device.hpp"\n#include "io/files/files.hpp"\n',
    "models/engines/torch/torch_engine.cpp": '#include <torch/script.h>\n#include <ATen/ops/zeros.h>\n#include "models/engine.hpp"\n',
    "stages/detect.hpp": '#pragma once\n#include "models/engine.hpp"\n#include "io/input/item.hpp"\n#include "pipeline/graph.hpp"\n#include "gpu/device.hpp"\n',
    "run/execution.hpp": '#pragma once\n#include "stages/detect.hpp"\n#include "pipeline/graph.hpp"\n#include "io/results/plan.hpp"\n',
    "apps/main.cpp": '#include <boost/program_options.hpp>\n#include "run/execution.hpp"\n#include "stages/detect.hpp"\n',
    "models/tasks/find.cpp": 'Task find() {\n  return {.name = "find",\n          .model = "finder",\n          .method_names = {"look", "decode"}};\n}\n',
    "models/tasks/hear.cpp": 'Task hear() {\n  return {.name = "hear",\n          .model = "ear",\n          .method_names = {"listen"}};\n}\n',
    "stages/find.cpp": 'ModelUse use() { return {.task = "find", .calls = {{.method = "look"}}}; }\n',
    "stages/decode.hpp": '#pragma once\nstruct Decode {\n  static constexpr const char* name = "decode";  // not "look"\n};\n',
    "bench/masks.cpp": '#include <opencv2/core.hpp>\n#include "io/input/item.hpp"\n#include "run/execution.hpp"\n',
    "tests/reference.hpp": "#pragma once\n",
    "tests/gpu/parity.cpp": '#include "models/engine.hpp"\nint changes = 0;\n',
    "tests/pipeline/graph_test.cpp": '#include "pipeline/graph.hpp"\n#include "tests/reference.hpp"\n#include <opencv2/imgproc.hpp>\n#include <nvtx3/nvToolsExt.h>\n',
    "tools/long.sh": "\n" * 500,
    "bench/gpu/long.py": "\n" * 500,
    "io/files/long.cpp": "\n" * 500,
}

# file, content, line of the violation, words that name the rule
PLANTED = [
    ("base/up.cpp", '#include "gpu/device.hpp"\n', 1, "base/ may include, besides itself, nothing of ours"),
    ("models/planted.cpp", 'const char* const method = "look";\n', 1, '"look" is the name of a task or method'),
    ("models/planted.cpp", '\nconst char* const task = "hear";\n', 2, '"hear" is the name of a task or method'),
    ("run/planted.cpp", 'bool is(const Package& package) { return package.task->name == "hear"; }\n', 1, "a test for a task"),
    ("run/planted.cpp", 'bool is(const Package& package) { return "hear" != package.task->name; }\n', 1, "a test for a task"),
    ("run/planted.cpp", 'bool is(const ModelUse& use) { return use.task == "hear"; }\n', 1, "a test for a task"),
    ("stages/planted.cpp", 'bool is(const ModelUse& use) { return "hear" == use.task; }\n', 1, "a test for a task"),
    ("run/planted.cpp", 'bool is(const Package& package) { return package.task->model == "ear"; }\n', 1, "a test for a task"),
    ("run/planted.cpp", 'bool is(const Package& package) { return package.task->name.starts_with("he"); }\n', 1, "a test for a task"),
    ("run/planted.cpp", 'bool is(const Package& package) {\n  return package.task->name ==\n         "hear";\n}\n', 2, "a test for a task"),
    ("run/planted.cpp", 'const Task& task() { return find_task("hear"); }\n', 1, "a test for a task"),
    ("run/planted.cpp", 'const char* const method = "listen";\n', 1, '"listen" is the name'),
    ("apps/planted.cpp", 'const char* const method = "decode";\n', 1, '"decode" is the name'),
    ("stages/planted.cpp", 'ModelUse use() { return {.task = "find", .calls = {{.method = "listen"}}}; }\n', 1, '"listen" is the name'),
    ("apps/planted.cpp", '#include <nlohmann/json_fwd.hpp>\n#include <nlohmann/json.hpp>\n', 2, "the whole of nlohmann-json"),
    ("base/up_io.cpp", '#include "io/files/files.hpp"\n', 1, "base/ may include"),
    ("gpu/sideways.cpp", '#include "io/files/files.hpp"\n', 1, "gpu/ may include, besides itself, base"),
    ("gpu/up.cpp", '#include "models/engine.hpp"\n', 1, "gpu/ may include"),
    ("io/files/up.cpp", '#include <string>\n#include "stages/detect.hpp"\n', 2, "io/ may include, besides itself, base"),
    ("io/files/sideways.cpp", '#include "gpu/device.hpp"\n', 1, "io/ may include"),
    ("pipeline/down.cpp", '#include "gpu/device.hpp"\n', 1, "pipeline/ may include, besides itself, base"),
    ("pipeline/io.cpp", '#include "io/files/files.hpp"\n', 1, "pipeline/ may include"),
    ("pipeline/model.cpp", '#include "models/engine.hpp"\n', 1, "pipeline/ may include"),
    ("models/sideways.cpp", '#include "pipeline/graph.hpp"\n', 1, "models/ may include, besides itself, base, gpu, io"),
    ("models/up.cpp", '#include "stages/detect.hpp"\n', 1, "models/ may include"),
    ("stages/up.cpp", '#include "run/execution.hpp"\n', 1, "stages/ may include"),
    ("stages/up_apps.cpp", '#include "apps/main.cpp"\n', 1, "stages/ may include"),
    ("run/up.cpp", '#include "apps/main.cpp"\n', 1, "run/ may include"),
    ("bench/up.cpp", '#include "apps/main.cpp"\n', 1, "bench/ may include, besides itself, base, gpu, io, models, pipeline, run, stages"),
    ("apps/up.cpp", '#include "bench/masks.cpp"\n', 1, "apps/ may include"),
    ("io/files/within.cpp", '#include "io/decode/decode.hpp"\n', 1, "io/files/ may include of io/, besides itself, nothing of ours"),
    ("io/input/within.cpp", '#include "io/decode/decode.hpp"\n', 1, "io/input/ may include of io/, besides itself, files"),
    ("io/decode/within.cpp", '#include "io/input/item.hpp"\n', 1, "io/decode/ may include of io/"),
    ("io/decode/up.cpp", '#include "io/results/plan.hpp"\n', 1, "io/decode/ may include of io/"),
    ("io/results/within.cpp", '#include "io/sinks/coco.hpp"\n', 1, "io/results/ may include of io/"),
    ("io/loose.cpp", "\n", 1, "must be in one of its folders"),
    ("io/other/file.cpp", "\n", 1, "must be in one of its folders"),
    ("stages/graph.cpp", "#include <tbb/flow_graph.h>\n", 1, "TBB"),
    ("stages/all_of_tbb.cpp", "#include <tbb.h>\n", 1, "TBB"),
    ("io/files/parallel.cpp", "#include <oneapi/tbb/parallel_for.h>\n", 1, "TBB"),
    ("models/package.cpp", "#include <ATen/core/Tensor.h>\n", 1, "LibTorch"),
    ("models/engines/beside.cpp", "#include <torch/script.h>\n", 1, "LibTorch"),
    ("stages/tensor.cpp", "#include <c10/core/Device.h>\n", 1, "LibTorch"),
    ("models/all.cpp", "\n\n#include <torch/torch.h>\n", 3, "torch/torch.h"),
    ("models/engines/torch/all.cpp", "#include <torch/torch.h>\n", 1, "torch/torch.h"),
    ("stages/resize.cpp", "#include <opencv2/imgproc.hpp>\n", 1, "OpenCV"),
    ("run/show.cpp", "#include <opencv2/core.hpp>\n", 1, "OpenCV"),
    ("gpu/resize.cpp", "#include <opencv2/core.hpp>\n", 1, "OpenCV"),
    ("io/decode/bmp.cpp", "#include <opencv2/imgcodecs.hpp>\n", 1, "OpenCV"),
    ("stages/copy.cpp", "#  include <cuda_runtime.h>\n", 1, "CUDA"),
    ("models/half.cpp", "#include <cuda_fp16.h>\n", 1, "CUDA"),
    ("stages/sort.cpp", "#include <thrust/sort.h>\n", 1, "CUDA"),
    ("pipeline/ranges.cpp", "#include <nvtx3/nvToolsExt.h>\n", 1, "NVTX"),
    ("base/other.cpp", "#include <nvtx3/nvToolsExt.h>\n", 1, "NVTX"),
    ("io/files/options.cpp", "#include <boost/program_options.hpp>\n", 1, "Boost"),
    ("run/options.cpp", "#include <boost/program_options.hpp>\n", 1, "Boost"),
    ("io/input/relative.cpp", '#include "item.hpp"\n', 1, "write includes of ours with the path from the root"),
    ("io/input/dots.cpp", '#include "../input/item.hpp"\n', 1, "write includes of ours with the path from the root"),
    ("io/input/angle.cpp", "#include <io/input/item.hpp>\n", 1, "write includes of ours as"),
    ("io/files/twice.hpp", "struct Twice {};\n", 1, "#pragma once"),
    ("stages/from_tests.cpp", '#include "tests/reference.hpp"\n', 1, "only tests"),
    ("bench/from_tests.cpp", '#include "tests/reference.hpp"\n', 1, "only tests"),
    ("tests/io/torch_test.cpp", "#include <torch/torch.h>\n", 1, "torch/torch.h"),
    ("stages/long.cpp", "\n" * 501, 501, "the file has 501 lines; at most 500 are allowed"),
    ("tests/apps/long_test.py", "\n" * 501, 501, "the file has 501 lines"),
    ("bench/gpu/longer.py", "\n" * 600, 501, "the file has 600 lines"),
    ("tools/longer.sh", "\n" * 501, 501, "the file has 501 lines"),
]

CHANGES, COMMENT = "a variable that changes", "needs a comment above it that gives the reason"

# kind of variable, source, line of the violation, words that name the rule
VARIABLES = [
    ("static in a function", "int next() {\n  static int count = 0;\n  return ++count;\n}\n", 2, CHANGES),
    ("static in a member function", "struct A {\n  int next() const {\n    static int count;\n    return ++count;\n  }\n};\n", 3, CHANGES),
    ("static in a lambda", "void f() {\n  const auto g = [&](int x) {\n    static int sum{0};\n    return sum += x;\n  };\n}\n", 3, CHANGES),
    ("static in a call's lambda", "void f() {\n  call(1, [] {\n    static int sum = 0;\n    ++sum;\n  });\n}\n", 3, CHANGES),
    ("static built by parentheses", "void f() {\n  static std::mutex mutex(1);\n}\n", 2, CHANGES),
    ("static of a type with arguments", "void f() {\n  static std::map<std::string, std::function<int(int)>> known;\n}\n", 2, CHANGES),
    ("static over lines", "void f() {\n  static std::map<std::string,\n                  int>\n      known{\n          {1, 2}};\n}\n", 2, CHANGES),
    ("static pointer to a constant", "const char* f() {\n  static const char* last = nullptr;\n  return last;\n}\n", 2, CHANGES),
    ("static reference", "Cache& f() {\n  static Cache& cache = *new Cache();\n  return cache;\n}\n", 2, CHANGES),
    ("static in a constructor", "A::A(int x) : x_(x), y_{x} {\n  static int made = 0;\n}\n", 2, CHANGES),
    ("static in an operator", "A& A::operator+=(int x) noexcept {\n  static int calls = 0;\n  return *this;\n}\n", 2, CHANGES),
    ("static in a template", "template <class T = int, class U>\nvoid f(T x = 3) {\n  static T last = x;\n}\n", 3, CHANGES),
    ("static after a loop", "void f() {\n  for (int i = 0; i < 3; ++i) {\n  }\n  static int x;\n}\n", 4, CHANGES),
    ("static in a class", "class A {\n public:\n  static int count;\n};\n", 3, CHANGES),
    ("static right behind a label", "class A {\n private: static int count;\n};\n", 2, CHANGES),
    ("inline static in a class", "struct A final : B<int> {\n  inline static std::vector<int> known{};\n};\n", 2, CHANGES),
    ("static inline in a class", "struct A {\n  static inline std::atomic<int> count{0};\n};\n", 2, CHANGES),
    ("definition of a class's static", "int A::count = 0;\n", 1, CHANGES),
    ("global", "namespace millrace {\nint count = 0;\n}\n", 2, CHANGES),
    ("global without a value", "namespace {\nstd::string last;\n}\n", 2, CHANGES),
    ("global with braces", "std::atomic<bool> stop{false};\n", 1, CHANGES),
    ("global array", "double table[3][4];\n", 1, CHANGES),
    ("global pointer", "const char* name = nullptr;\n", 1, CHANGES),
    ("global pointer to a function", "void (*handler)(int) = nullptr;\n", 1, CHANGES),
    ("global by parentheses", "std::vector<int> table(3);\n", 1, CHANGES),
    ("global of a struct's type", "struct stat known;\n", 1, CHANGES),
    ("global over lines", "std::unordered_map<std::string,\n                   int>\n    known;\n", 1, CHANGES),
    ("indented global", "namespace a {\n  int count;\n}\n", 2, CHANGES),
    ("static global", "static int count = 0;\n", 1, CHANGES),
    ("inline global", "inline int count = 0;\n", 1, CHANGES),
    ("extern global", "extern int count;\n", 1, CHANGES),
    ("constinit global", "constinit int count = 0;\n", 1, CHANGES),
    ("global behind a function with a lambda", "void f() {\n  g([](int x) { return Foo{x}; });\n}\nint count = 0;\n", 4, CHANGES),
    ("global behind text with brackets", 'const char* const a = "{ /* \\" ";\nconst char b = \'{\';\nconst auto c = R"(})";\nint count;\n', 4, CHANGES),
    ("global behind a macro", "#define OPEN { \\\n  {\nconst int a = 1\'000;\nint count;\n", 4, CHANGES),
    ("once_flag in a function", "void f() {\n  static std::once_flag once;\n}\n", 2, COMMENT),
    ("once_flag as a member", "struct A {\n  mutable std::once_flag once{};\n};\n", 2, COMMENT),
    ("once_flag with a blank line above", "// why\n\nstd::once_flag once;\n", 3, COMMENT),
    ("thread_local", "void f() {\n  thread_local int team = 0;\n}\n", 2, COMMENT),
    ("static thread_local", "void f() {\n  static thread_local std::optional<int> team;\n}\n", 2, COMMENT),
    ("thread_local static", "thread_local static int team = 0;\n", 1, COMMENT),
    ("thread_local at the top", "namespace {\nthread_local std::vector<int> kept;\n}\n", 2, COMMENT),
]

GOOD_CODE = """#include <vector>
// static int count = 0;
/* int count;
   static int more; */
#define STATIC static int x;

namespace millrace {
namespace fs = std::filesystem;
using Map = std::map<int, int>;
typedef struct A B;
class Forward;
struct Declared;
enum class Kind : int { a, b = 3 };
enum { one, two };
template <class T>
concept Small = sizeof(T) < 8;
static_assert(sizeof(int) == 4);
template struct Made<int>;
template StageEntry stage_entry<Encode>();
extern template class Made<float>;

constexpr int a = 1'000, b = 2;
inline constexpr Field<std::vector<int>> field{"field", write};
const std::string text = "static int x;";
static const std::map<std::string, int> known{{"a", 1}, {"b", 2}};
const char* const name = "x";
extern const int declared;
constexpr StageEntry (*rows[])() = {one, two};
const auto made = [] {
  std::vector<int> values;
  return values;
}();

static int sum(int x, int y = 3);
static std::map<std::string,
                int>
names_of(
    const std::vector<int>& list);
std::string text_of(int x);
std::vector<std::pair<int, int>> pairs(const std::map<int, int>& from);
int zero() { return 0; }
void f(std::function<void(int)> g = {});
std::function<int(int)> adder(int x);
bool operator==(const A& a, const A& b);
std::ostream& operator<<(std::ostream& out, const A& a);
[[nodiscard]] inline bool empty(const A& a) noexcept { return a.list.empty(); }
Keys(Names...) -> Keys<sizeof...(Names)>;
auto trailing(int x) -> std::vector<int> { return {x}; }
static inline int twice(int x) { return 2 * x; }

template <class T, std::size_t N = 3>
struct Keys final : private Base<T> {
  Keys() = default;
  explicit Keys(int x) : x_(x), y_{x}, z_({1, 2}) {}
  static Keys open(const std::string& name = "");
  static constexpr int most = 3;
  static constexpr const char* name = "keys";
  static const int limit;
  Keys& operator=(const Keys&) = delete;
  bool operator()(int x) const { return x < 3; }
  std::string value() const override { return {}; }
  int x_ = 0;
  std::vector<int> y_, z_{};
  std::function<void(int)> callback;
  mutable std::mutex mutex_;

 private:
  static std::map<std::string, int> table(int x);
  // Two threads may be first.
  mutable std::once_flag once_{};
  std::once_flag& other_;
};

void body(int x) {
  static const int limit = 3;
  static constexpr std::array<int, 2> ends{1, 2};
  static const std::vector<StageEntry> entries = [] {
    std::vector<StageEntry> list;
    return list;
  }();
  // Each thread has its own team.
  thread_local int team = 0;
  // Once for the process:
  // several engines come here.
  static std::once_flag once;
  int plain = 0;
  auto* pointer = static_cast<int*>(&plain);
  struct Local {
    int member = 0;
  } local;
  if (x < 3 && plain > 2) plain = x;
  switch (x) {
    case 1: {
      plain = 2;
    }
    default:
      break;
  }
  do {
    ++plain;
  } while (plain < 3);
  try {
    run(A{1, 2}, [&] { return plain; });
  } catch (const std::exception& error) {
    throw Error{error};
  }
}

extern "C" {
int exported(int x);
}

std::vector<int> after_all(int x);

}  // namespace millrace
"""


def write(files, folder):
    for name, content in files.items():
        path = pathlib.Path(folder) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def found(files):
    """The lines that the program prints for a tree of these files."""
    with tempfile.TemporaryDirectory() as folder:
        write(files, folder)
        return [f"{file}:{line}: {message}" for file, line, message in check_includes.problems_of(pathlib.Path(folder))]


class CheckIncludes(unittest.TestCase):
    def found_alone(self, name, content, line, words, others=None):
        with self.subTest(name, words=words):
            output = found({**GOOD, **(others or {}), name: content})
            self.assertEqual(len(output), 1, output)
            self.assertTrue(output[0].startswith(f"{name}:{line}: "), output)
            self.assertIn(words, output[0])

    def test_a_good_tree_passes(self):
        self.assertEqual(found(GOOD), [])

    def test_the_program_prints_what_is_wrong_and_ends_with_1(self):
        for more, code, output in (({}, 0, ""), ({"base/a.hpp": ""}, 1, "base/a.hpp:1: a header begins with #pragma once\n")):
            with tempfile.TemporaryDirectory() as folder:
                write({**GOOD, **more}, folder)
                done = subprocess.run([sys.executable, CHECK, folder], capture_output=True, text=True, check=False)
                self.assertEqual((done.returncode, done.stdout), (code, output), done.stderr)

    def test_each_planted_violation_is_found_alone(self):
        for planted in PLANTED:
            self.found_alone(*planted)

    def test_circles_are_named_once(self):
        header = "#pragma once\n"
        two = {"run/b.hpp": header + '#include "run/a.hpp"\n'}
        self.found_alone("run/a.hpp", header + '#include "run/b.hpp"\n', 1, "run/a.hpp -> run/b.hpp -> run/a.hpp", two)
        three = {"run/b.hpp": header + '#include "run/c.hpp"\n', "run/c.hpp": header + '#include "run/a.hpp"\n'}
        self.found_alone("run/a.hpp", header + '#include "run/b.hpp"\n', 1, "run/a.hpp -> run/b.hpp -> run/c.hpp -> run/a.hpp", three)
        self.found_alone("run/own.hpp", header + '#include "run/own.hpp"\n', 1, "run/own.hpp -> run/own.hpp")
        # A file that several files include is not a cycle.
        both = {"run/top.hpp": header, "run/left.hpp": header + '#include "run/top.hpp"\n'}
        self.assertEqual(found({**GOOD, **both, "run/right.hpp": header + '#include "run/top.hpp"\n#include "run/left.hpp"\n'}), [])

    def test_one_name_has_one_class(self):
        self.found_alone("run/b.cpp", "namespace a {\nclass Twice final : public Base {\n};\n}\n", 2, "base/a.cpp has a class a::Twice too",
                         {"base/a.cpp": "namespace a {\nstruct Twice {\n};\n}\n"})
        apart = {"base/a.cpp": "namespace a {\nstruct Twice {\n  struct Inner {};\n};\nvoid f() {\n  struct Own {};\n}\n}\n",
                 "run/b.cpp": "namespace a {\nclass Twice;\nnamespace {\nstruct Twice {\n};\n}\nnamespace b {\nstruct Twice {\n};\n}\nstruct Other::Twice {\n};\n"
                              "struct Other {\n  struct Inner {};\n};\nvoid g() {\n  struct Own {};\n}\n}\n"}
        self.assertEqual(found({**GOOD, **apart}), [])

    def test_each_variable_that_lives_as_long_as_the_program_is_found_alone(self):
        for what, source, line, words in VARIABLES:
            with self.subTest(what):
                self.found_alone("run/planted.cpp", source, line, words)
                self.found_alone("run/planted.cpp", GOOD_CODE + source, GOOD_CODE.count("\n") + line, words)

    def test_code_without_such_variables_passes(self):
        self.assertEqual(found({**GOOD, "run/good.cpp": GOOD_CODE}), [])


if __name__ == "__main__":
    unittest.main()
