#include "io/sinks/side_files.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "io/files/files.hpp"
#include "tests/io/files/temporary_folder.hpp"

namespace millrace {
namespace {

namespace fs = std::filesystem;

std::string joined(std::string_view path, std::string_view suffix = ".jpg", NameRules rules = NameRules::exact) {
  std::string text;
  for (const auto& name : side_path(path, suffix, rules)) text.append(text.empty() ? "" : "/").append(name);
  return text;
}

std::vector<std::uint8_t> bytes_of(std::string_view text) { return {text.begin(), text.end()}; }

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

TEST_CASE("side files mirror the input folders and keep the extension") {
  CHECK(joined("front/a.jpg") == "front/a.jpg.jpg");
  CHECK(joined("front/a.png") == "front/a.png.jpg");
  CHECK(joined("a") == "a.jpg");
  CHECK(joined("./a//b/./c.tif", ".png") == "a/b/c.tif.png");
  CHECK(joined("/data/a.jpg") == "_root/data/a.jpg.jpg");
  CHECK(joined("../../a.jpg") == "_up/_up/a.jpg.jpg");
  CHECK(joined("a/../b.jpg") == "a/_up/b.jpg.jpg");
  CHECK(joined("a..") == "a...jpg");
  // Names that the program itself uses are escaped.
  CHECK(joined(".tmp-1/x.jpg") == "_.tmp-1/x.jpg.jpg");
  CHECK(joined("_up/_root/x.jpg") == "__up/_root/x.jpg.jpg");
  CHECK(joined("_root/d.jpg/x.jpg") == "__root/d.jpg_/x.jpg.jpg");
  CHECK(joined("-rf *\n%s,\"x\".jpg") == "-rf *\n%s,\"x\".jpg.jpg");
  CHECK(joined("\xFF\xFE.jpg") == "\xFF\xFE.jpg.jpg");
  for (const char* bad : {"", "/", ".", "..", "a/..", "../.."}) CHECK_THROWS_AS(joined(bad), std::invalid_argument);
  CHECK_THROWS_AS(joined(std::string_view("a\0b", 3)), std::invalid_argument);
}

TEST_CASE("different pictures have different side files, and no file takes the name of a folder") {
  const std::vector<std::string> paths{"a/x.jpg",
                                       "b/x.jpg",
                                       "a/x.png",
                                       "x.jpg",
                                       "/a/x.jpg",
                                       "_root/a/x.jpg",
                                       "__root/a/x.jpg",
                                       "/_root/a/x.jpg",
                                       "../x.jpg",
                                       "_up/x.jpg",
                                       "__up/x.jpg",
                                       "up/x.jpg",
                                       "root/x.jpg",
                                       ".tmp-1",
                                       "_.tmp-1",
                                       ".tmp-1/x.jpg",
                                       "_.tmp-1/x.jpg",
                                       "d.jpg",
                                       "d.jpg.jpg/x.jpg",
                                       "d.jpg/x.jpg",
                                       "d.jpg_/x.jpg",
                                       "d.jpg__/x.jpg",
                                       "D.jpg",
                                       "caf\xC3\xA9.jpg",
                                       "cafe\xCC\x81.jpg",
                                       std::string(255, 'n'),
                                       std::string(254, 'n') + "m",
                                       std::string(255, 'n') + "/x.jpg",
                                       "_up",
                                       "__up"};
  for (const auto rules : {NameRules::exact, NameRules::portable}) {
    std::set<std::string> files, folders;
    for (const auto& path : paths) {
      CAPTURE(path);
      const auto names = side_path(path, ".jpg", rules);
      std::string whole;
      for (std::size_t i = 0; i < names.size(); ++i) {
        CHECK(names[i].size() <= 255);
        CHECK(names[i] != "..");
        CHECK(names[i].find('/') == std::string::npos);
        whole.append("/").append(names[i]);
        if (i + 1 < names.size()) folders.insert(whole);
      }
      if (rules == NameRules::portable) {
        for (char& c : whole) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      }
      CHECK(files.insert(whole).second);
    }
    for (const auto& folder : folders) CHECK_FALSE(files.contains(folder));
  }
}

TEST_CASE("long names are cut between characters and differ by their hash") {
  std::string umlauts;
  while (umlauts.size() < 254) umlauts += "\xC3\xA4";
  const std::string name = joined(umlauts + "x");
  CHECK(name.size() <= 255);
  CHECK(name.ends_with(".jpg"));
  CHECK((name.size() - 21) % 2 == 0);  // whole letters, then "~", 16 digits, ".jpg"
  CHECK(name != joined(umlauts + "y"));
  CHECK(name == joined(umlauts + "x"));
  CHECK(joined(std::string(251, 'n')).size() == 255);
  CHECK(joined(std::string(251, 'n')).find('~') == std::string::npos);
}

TEST_CASE("names for file systems that ignore case") {
  CHECK(joined("front/a-1_b.jpg", ".jpg", NameRules::portable) == "front/a-1_b.jpg.jpg");
  CHECK(joined("IMG.JPG", ".jpg", NameRules::portable) != joined("img.jpg", ".jpg", NameRules::portable));
  CHECK(joined("IMG.JPG", ".jpg", NameRules::portable).starts_with("___.___~"));
  CHECK(joined("a:b?.jpg", ".jpg", NameRules::portable).starts_with("a_b_.jpg~"));
  CHECK(joined("dots./a.jpg", ".jpg", NameRules::portable).starts_with("dots.~"));
}

TEST_CASE("files are written whole or replaced, and nothing else is left") {
  const TemporaryFolder out;
  const SideFiles files(out.path(), "overlay", ".jpg");
  std::string deep = "d";  // longer than PATH_MAX
  for (int i = 0; i < 30; ++i) deep.append("/").append(200, 'e');
  const std::vector<std::string> paths{
      "a/x.jpg", "b/x.jpg", "a/x.png", "new\nline.jpg", "\xFF\xFE.jpg", "/abs/x.jpg", "../x.jpg", std::string(255, 'n'),
      deep};
  std::int64_t id = 0;
  for (const auto& path : paths) files.write(id++, path, bytes_of("first"));
  for (const auto& path : paths) files.write(id++, path, bytes_of(path));
  for (const auto& path : paths) {
    if (path != deep) CHECK(content_of(files.path_of(path)) == path);
  }
  CHECK(files.path_of("a/x.jpg") == out.path() + "/overlay/a/x.jpg.jpg");
  CHECK_FALSE(fs::exists(out.path() + "/x.jpg.jpg"));
  std::size_t count = 0;
  for (const auto& entry : fs::recursive_directory_iterator(out.path() + "/overlay")) {
    CHECK(entry.path().filename().string().find(".tmp-") == std::string::npos);
    count += entry.path().string().size() < 4000 && entry.is_regular_file() ? 1 : 0;
  }
  CHECK(count == paths.size() - 1);
  std::system(("rm -rf '" + out.path() + "/overlay/d'").c_str());  // std::filesystem fails on paths of that length
}

TEST_CASE("a temporary file of a killed run is replaced when its picture is written again") {
  const TemporaryFolder out;
  const SideFiles files(out.path(), "labels", ".png");
  std::ofstream(out.path() + "/labels/.tmp-5") << "longer than what follows, torn";
  files.write(5, "x.jpg", bytes_of("short"));
  CHECK(content_of(out.path() + "/labels/x.jpg.png") == "short");
  CHECK_FALSE(fs::exists(out.path() + "/labels/.tmp-5"));
}

TEST_CASE("links in the output are not followed to other folders") {
  const TemporaryFolder out, outside;
  const SideFiles files(out.path(), "overlay", ".jpg");
  fs::create_directory_symlink(outside.path(), out.path() + "/overlay/link");
  CHECK_THROWS_WITH_AS(files.write(1, "link/x.jpg", bytes_of("x")), doctest::Contains("links are not followed"),
                       StorageError);
  fs::create_symlink(outside.path() + "/target", out.path() + "/overlay/.tmp-2");
  CHECK_THROWS_AS(files.write(2, "y.jpg", bytes_of("y")), StorageError);
  // A link in place of the file itself is replaced, not followed.
  fs::create_symlink(outside.path() + "/target", out.path() + "/overlay/z.jpg.jpg");
  files.write(3, "z.jpg", bytes_of("z"));
  CHECK_FALSE(fs::is_symlink(out.path() + "/overlay/z.jpg.jpg"));
  CHECK(fs::is_empty(outside.path()));
  fs::create_directory_symlink(outside.path(), out.path() + "/labels");
  CHECK_THROWS_AS(SideFiles(out.path(), "labels", ".png"), StorageError);
}

TEST_CASE("failures are storage errors that name the file") {
  const TemporaryFolder out;
  CHECK_THROWS_AS(SideFiles(out.path() + "/missing", "overlay", ".jpg"), StorageError);
  const SideFiles files(out.path(), "overlay", ".jpg");
  std::ofstream(out.path() + "/overlay/a") << "a file where a folder belongs";
  CHECK_THROWS_WITH_AS(files.write(1, "a/x.jpg", bytes_of("x")), doctest::Contains("/overlay/a"), StorageError);
  fs::create_directory(out.path() + "/overlay/b.jpg");
  CHECK_THROWS_AS(files.write(1, "b", bytes_of("x")), StorageError);
  CHECK_FALSE(fs::exists(out.path() + "/overlay/.tmp-1"));
  fs::remove_all(out.path() + "/overlay");  // deleted during the run: not made again
  CHECK_THROWS_AS(files.write(1, "x.jpg", bytes_of("x")), StorageError);
  CHECK_FALSE(fs::exists(out.path() + "/overlay"));
}

TEST_CASE("many threads write into the same new folders") {
  const TemporaryFolder out;
  const SideFiles files(out.path(), "overlay", ".jpg");
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&files, t] {
        for (int i = 0; i < 50; ++i) {
          const std::string path = std::to_string(i) + "/e/" + std::to_string(t) + ".jpg";
          files.write(t * 50 + i, path, bytes_of(path));
          files.write(1000 + t * 50 + i, "the same.jpg", bytes_of("the same"));
        }
      });
    }
  }
  for (int i = 0; i < 50; ++i)
    CHECK(content_of(files.path_of(std::to_string(i) + "/e/3.jpg")) == std::to_string(i) + "/e/3.jpg");
  CHECK(content_of(files.path_of("the same.jpg")) == "the same");
}

}  // namespace millrace
