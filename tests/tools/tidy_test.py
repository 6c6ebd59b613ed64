"""clang-tidy finds the same faults in a file that it checks alone and in one that it checks together with others."""

import pathlib
import re
import sys
import tempfile
import unittest

SOURCES = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCES / "tools"))

import tidy  # noqa: E402

PLANTED = """#include <cstring>
#include <memory>
#include <string>
#include <vector>
#include <memory>

namespace millrace {
typedef int Number;
struct Base {
  virtual ~Base() {}
  virtual void go();
};
struct derived : Base {
  void go();
  Number* where = 0;
};
std::string NAME(std::vector<std::string> texts) {
  std::string first = std::move(texts[0]);
  texts.push_back(std::string("x"));
  if (texts.size() == 0) return std::string(first.c_str());
  for (std::string text : texts) first += text;
  if (strcmp("x", first.c_str())) first += "y";
  const std::string moved = std::move(first);
  first += moved;
  int tenths = 10;
  double whole = tenths / 3;
  return std::to_string(whole);
}
}  // namespace millrace
"""
FINE = "namespace millrace {\nnamespace {\nint one() { return 1; }\n}  // namespace\nint NAME() { return one(); }\n}  // namespace millrace\n"
COMMAND = "g++ -std=c++20 -c SOURCE"


def findings(output):
    return sorted(set(re.findall(r"/(\w+[.]cpp):(\d+):\d+: error: .*\[([\w.-]+),", output)))


class Batches(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name).resolve()
        (self.root / "base").mkdir()
        (self.root / ".clang-tidy").write_text((SOURCES / ".clang-tidy").read_text())
        root, build, tidy.ROOT, tidy.BUILD = tidy.ROOT, tidy.BUILD, self.root, self.root
        self.addCleanup(lambda: (setattr(tidy, "ROOT", root), setattr(tidy, "BUILD", build)))

    def file(self, name, text):
        path = self.root / "base" / f"{name}.cpp"
        path.write_text(text.replace("NAME", name))
        return path

    def test_a_batch_finds_what_a_file_alone_shows(self):
        fine, planted, other = self.file("first", FINE), self.file("planted", PLANTED), self.file("other", "int other() { return 2; }\n")
        _, alone = tidy.tidy([planted], COMMAND.replace("SOURCE", str(planted)))
        _, together = tidy.tidy([fine, planted, other], COMMAND.replace("SOURCE", str(fine)))
        self.assertEqual(findings(alone), findings(together))
        self.assertGreaterEqual(len({check for _, _, check in findings(alone)}), 11, alone)

    def test_only_the_file_with_the_fault_fails(self):
        sources = [self.file("first", FINE), self.file("planted", PLANTED), self.file("other", "int other() { return 2; }\n")]
        failed = tidy.failures(sources, COMMAND.replace("SOURCE", str(sources[0])))
        self.assertEqual([path.name for path, _ in failed], ["planted.cpp"])

    def test_files_with_a_name_in_common_are_in_two_batches(self):
        texts = ("int one() { return 1; }\n", "static std::string one(int a, int b) {\n", "class one final : public Base {\n", "const std::array<int, 2> one{1, 2};\n")
        sources = [self.file(f"file{k}", text) for k, text in enumerate((*texts, "int two() { return one(); }\n", "  int one = 2;\n"))]
        self.assertEqual(tidy.batches_of(sources), [[sources[0], *sources[4:]], *([source] for source in sources[1:4])])

    def test_names_that_clash_do_not_fail(self):
        sources = [self.file("first", FINE), self.file("second", FINE), self.file("third", FINE)]
        self.assertEqual(tidy.failures(sources, COMMAND.replace("SOURCE", str(sources[0]))), [])
        code, output = tidy.tidy(sources, COMMAND.replace("SOURCE", str(sources[0])))
        self.assertEqual((code, len(tidy.CLASH.findall(output))), (1, 1), output)


if __name__ == "__main__":
    unittest.main()
