#include "io/input/scan.hpp"

#include <doctest/doctest.h>
#include <fnmatch.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <random>

#include "io/files/source_names.hpp"
#include "tests/io/results/plan_tree.hpp"

namespace millrace {
namespace {

std::vector<std::string> walk(const FolderWalk::Options& options, ScanCounts& counts) {
  FolderWalk walk(options, counts);
  std::vector<std::string> paths;
  std::string path;
  while (walk.next(path)) paths.push_back(path);
  return paths;
}

std::vector<std::string> walk(const std::string& folder) {
  ScanCounts counts;
  return walk({folder, {}, false, {}}, counts);
}

using Names = std::vector<std::string>;

TEST_CASE("globs match as in a shell") {
  struct Row {
    const char* pattern;
    const char* path;
    bool matches;
  };
  const Row rows[] = {
      {"*.jpg", "a.jpg", true},
      {"*.jpg", "a.JPG", false},
      {"*.jpg", "d/a.jpg", false},
      {"*", ".hidden", false},
      {".*", ".hidden", true},
      {"?.jpg", ".jpg", false},
      {"[.]a", ".a", false},
      {"a?c", "abc", true},
      {"a?c", "a/c", false},
      {"a?c",
       "a\xC3\xA4"
       "c",
       true},  // one character of two bytes
      {"a?c",
       "a\xFF"
       "c",
       true},  // one byte that is not UTF-8
      {"[abc]x", "bx", true},
      {"[!abc]x", "bx", false},
      {"[^abc]x", "dx", true},
      {"[a-c]x", "bx", true},
      {"[a-c]x", "dx", false},
      {"[]a]x", "]x", true},
      {"[!]a]x", "]x", false},
      {"[a-]x", "-x", true},
      {"[\\]]x", "]x", true},
      {"[ab", "[ab", true},  // not closed: matches itself
      {"a\\*b", "a*b", true},
      {"a\\*b", "axb", false},
      {"a\\", "a\\", true},
      {"**", "a/b/c.jpg", true},
      {"**/c.jpg", "c.jpg", true},
      {"**/c.jpg", "a/b/c.jpg", true},
      {"a/**/c.jpg", "a/c.jpg", true},
      {"a/**/c.jpg", "a/x/y/c.jpg", true},
      {"a/**/c.jpg", "b/x/c.jpg", false},
      {"a/**", "a/x/y", true},
      {"a/**/b/**/c", "a/1/b/2/b/3/c", true},
      {"a/**/b/**/c", "a/1/2/3/c", false},
      {"**/x", ".git/x", false},
      {"a**b", "axxb", true},
      {"a**b", "a/b", false},
      {"*.{jpg,png}", "a.png", true},
      {"*.{jpg,png}", "a.gif", false},
      {"{a,b/{c,d}}/x", "b/d/x", true},
      {"{a,b/{c,d}}/x", "b/x", false},
      {"{a}", "{a}", true},
      {"{a", "{a", true},
      {"x{,y}", "x", true},
      {"x{,y}", "xy", true},
      {"\\{a,b\\}", "{a,b}", true},
      {"", "", true},
      {"", "a", false},
      {"*a*b*c*", "xxaxxbxxcxx", true},
      {"*a*b*c*", "xxaxxcxxbxx", false},
  };
  for (const Row& row : rows) {
    CAPTURE(row.pattern);
    CAPTURE(row.path);
    CHECK(Glob(row.pattern).matches(row.path) == row.matches);
  }
}

TEST_CASE("globs agree with fnmatch on random patterns, except where they differ on purpose") {
  std::mt19937 random(7);
  const std::string pattern_letters = "ab.*?/[]!-";
  const std::string text_letters = "ab./";
  int matched = 0;
  for (int round = 0; round < 200'000; ++round) {
    std::string pattern;
    std::string text;
    for (auto n = random() % 7; n > 0; --n) pattern += pattern_letters[random() % pattern_letters.size()];
    for (auto n = random() % 6; n > 0; --n) text += text_letters[random() % text_letters.size()];
    // These differ on purpose: '**', empty names, and brackets that contain '/' or are not closed.
    // Shells find a match for "*?[.]" in "b.", glibc does not.
    const auto odd = [](const std::string& s) {
      return s.empty() || s.find("**") != std::string::npos || s.find("//") != std::string::npos ||
             s.starts_with('/') || s.ends_with('/');
    };
    bool odd_set = false;
    for (std::size_t open = pattern.find('['); open != std::string::npos; open = pattern.find('[', open + 1)) {
      const std::size_t close = pattern.find(']', open + 2);
      odd_set = odd_set || close == std::string::npos || pattern.find('/', open) < close ||
                pattern.find('[', open + 1) < close ||
                pattern.substr(open, close - open).find_first_of("-.") != std::string::npos ||
                pattern.substr(open, 3) == "[!]";
    }
    if (odd(pattern) || odd(text) || odd_set) continue;
    const bool expected = ::fnmatch(pattern.c_str(), text.c_str(), FNM_PATHNAME | FNM_PERIOD) == 0;
    matched += expected ? 1 : 0;
    CAPTURE(pattern);
    CAPTURE(text);
    REQUIRE(Glob(pattern).matches(text) == expected);
  }
  CHECK(matched > 1000);
}

TEST_CASE("a glob says where it can match below, and no pattern takes exponential time") {
  const Glob glob("a/*/c/**/x.jpg");
  CHECK(glob.may_match_below(""));
  CHECK(glob.may_match_below("a"));
  CHECK(glob.may_match_below("a/q/c/d/e/f"));
  CHECK_FALSE(glob.may_match_below("b"));
  CHECK_FALSE(glob.may_match_below("a/q/d"));
  CHECK_FALSE(Glob("a/b").may_match_below("a/b"));

  std::string stars;
  for (int i = 0; i < 200; ++i) stars += "**/a*a*a*a*a*/";
  std::string path;
  for (int i = 0; i < 200; ++i) path += "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab/";
  CHECK_FALSE(Glob(stars + "x").matches(path + "y"));
  std::string braces;
  for (int i = 0; i < 40; ++i) braces += "{a,b}";
  CHECK_THROWS_AS(Glob{braces}, std::invalid_argument);
  CHECK_THROWS_AS(Glob(std::string(4097, 'a')), std::invalid_argument);
  CHECK(Glob(std::string(4096, '{')).matches(std::string(4096, '{')));
  CHECK(Glob(std::string(4096, '[')).matches(std::string(4096, '[')));

  CHECK(Glob("*.dat").names_extension());
  CHECK(Glob("*.{dat,raw}").names_extension());
  CHECK_FALSE(Glob("*.*").names_extension());
  CHECK_FALSE(Glob("*").names_extension());
  CHECK(split_glob("a/b/*/c").folder == "a/b");
  CHECK(split_glob("a/b/*/c").pattern == "*/c");
  CHECK(split_glob("/x*").folder == "/");
  CHECK(split_glob("x*").folder.empty());
  CHECK(split_glob("a\\*b/c*").folder == "a*b");
}

TEST_CASE("patterns of views match names or paths") {
  CHECK(PathPattern("*_left.jpg").matches("a/b/x_left.jpg"));
  CHECK(PathPattern("left/**").matches("left/a/x.jpg"));
  CHECK_FALSE(PathPattern("left/**").matches("a/left/x.jpg"));
  CHECK(PathPattern("**/left/*").matches("a/left/x.jpg"));
  CHECK(PathPattern("**").matches("a/b.jpg"));
  CHECK(PathPattern("**").matches(".cache/b.jpg"));
  CHECK_FALSE(PathPattern("**/*.jpg").matches(".cache/b.jpg"));
}

TEST_CASE("names are escaped for display") {
  CHECK(display_name("a b.jpg") == "a b.jpg");
  CHECK(display_name("a\nb\t\x1b[31m\\") == R"(a\nb\t\x1b[31m\\)");
  CHECK(display_name("\xff\xfe.jpg") == R"(\xff\xfe.jpg)");
  CHECK(display_name("\xC3\xA4\xE2\x80\xAEgpj") == "\xC3\xA4\\u202egpj");
  CHECK(display_name("\xC2\x9B"
                     "31m") == "\\u009b31m");
  CHECK(display_name("\x7f") == "\\x7f");
  CHECK(to_utf8_lossy("a\xff\xC3z\xE2\x82") == "a\xEF\xBF\xBD\xEF\xBF\xBDz\xEF\xBF\xBD");
}

TEST_CASE("the scan order compares names, not the bytes of whole paths") {
  CHECK(compare_scan_order("a/z", "a.b") < 0);
  CHECK(compare_scan_order("a", "a/z") < 0);
  CHECK(compare_scan_order("a/b", "a/b") == 0);
  CHECK(compare_scan_order("b", "a\xff") > 0);
  CHECK(compare_scan_order("a\x01", "a/b") > 0);
}

TEST_CASE("a folder is walked depth first, entries are sorted by bytes, and similar names stay (N1, N2, N5)") {
  const TestTree tree;
  for (const char* name : {"b/x.jpg", "a/x.jpg", "x.jpg", "x.png", "a.jpg", "a/B.JPEG", "a/c/d/e.webp",
                           "caf\xC3\xA9.jpg", "cafe\xCC\x81.jpg"}) {
    tree.file(name);
  }
  const auto paths = walk(tree.root());
  CHECK(paths == Names{"a/B.JPEG", "a/c/d/e.webp", "a/x.jpg", "a.jpg", "b/x.jpg", "cafe\xCC\x81.jpg", "caf\xC3\xA9.jpg",
                       "x.jpg", "x.png"});
  CHECK(std::is_sorted(paths.begin(), paths.end(),
                       [](const auto& a, const auto& b) { return compare_scan_order(a, b) < 0; }));
}

TEST_CASE("a name may have any bytes (N3, N4, N6)") {
  const TestTree tree;
  const Names names{"\x01.jpg",
                    " .jpg",
                    "\"q\".jpg",
                    "%s.jpg",
                    "'.jpg",
                    "*.jpg",
                    ",.jpg",
                    "-rf.jpg",
                    "a\tb.jpg",
                    "a\nb.jpg",
                    std::string(251, 'n') + ".jpg",
                    "\xff\xfe.jpg"};
  for (const auto& name : names) tree.file(name);
  CHECK(walk(tree.root()) == names);
}

TEST_CASE("files that are no pictures are counted by reason and named (N8, N10)") {
  const TestTree tree;
  tree.file("ok.jpg");
  for (const char* name : {".hidden.jpg", ".DS_Store", "Thumbs.db", "@eaDir/t.jpg", ".git/x.jpg", "notes.txt", "README",
                           "clip.mp4", "clip2.MOV", "jpg", "trailing."}) {
    tree.file(name);
  }
  REQUIRE(::mkfifo(tree.path("pipe.jpg").c_str(), 0600) == 0);
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  tree.path("socket.jpg").copy(address.sun_path, sizeof address.sun_path - 1);
  REQUIRE(::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  ::close(socket);
  tree.file("folder.jpg/in.png");
  ScanCounts counts;
  CHECK(walk({tree.root(), {}, false, {}}, counts) == Names{"folder.jpg/in.png", "ok.jpg"});
  CHECK(counts[Skip::hidden].count == 3);
  CHECK(counts[Skip::system_file].count == 2);
  CHECK(counts[Skip::other_extension].count == 4);
  CHECK(counts[Skip::not_regular].count == 2);
  CHECK(counts.videos.count == 2);
  CHECK(counts.total_skipped() == 11);
  auto first = counts.videos.first;
  std::sort(first.begin(), first.end());
  CHECK(first == Names{"clip.mp4", "clip2.MOV"});
  CHECK(counts.summary().find("2 videos (not read yet: clip") != std::string::npos);
}

TEST_CASE("links (N7)") {
  const TestTree tree;
  tree.file("in/a.jpg");
  tree.file("in/sub/s.jpg");
  tree.file("out/o.jpg");
  tree.file("out/plain.dat");
  tree.link("../out/o.jpg", "in/file_link.jpg");
  tree.link("../out/plain.dat", "in/named.jpg");  // the scan goes by the link's name, decode by the content
  tree.link("../out/o.jpg", "in/file_link.dat");
  tree.link("../out", "in/z_folder_link");
  tree.link("nowhere.jpg", "in/dangling.jpg");  // an item that fails: it must not be lost
  tree.link("nowhere.txt", "in/dangling.txt");
  tree.link("ring_b.jpg", "in/ring_a.jpg");
  tree.link("ring_a.jpg", "in/ring_b.jpg");
  tree.link("..", "in/sub/up");
  ScanCounts counts;
  SUBCASE("links to folders are not followed by default") {
    CHECK(walk({tree.path("in"), {}, false, {}}, counts) ==
          Names{"a.jpg", "dangling.jpg", "file_link.jpg", "named.jpg", "sub/s.jpg"});
    CHECK(counts[Skip::folder_link].count == 2);
    CHECK(counts[Skip::loop].count == 2);
    CHECK(counts[Skip::other_extension].count == 2);
  }
  SUBCASE("links are followed on request, and loops are found by device and inode") {
    CHECK(walk({tree.path("in"), {}, true, {}}, counts) ==
          Names{"a.jpg", "dangling.jpg", "file_link.jpg", "named.jpg", "sub/s.jpg", "z_folder_link/o.jpg"});
    CHECK(counts[Skip::folder_link].count == 0);
    CHECK(counts[Skip::loop].count == 3);
    CHECK(counts[Skip::loop].first.back() == "sub/up");
  }
}

TEST_CASE("folders that cannot be listed are counted and named, and the others are read (N9)") {
  const TestTree tree;
  tree.file("a.jpg");
  // Root can list every folder, so the folder that fails here has a path that is too long.
  std::string deep;
  {
    const InFolder start(tree.root());
    for (int i = 0; i < 20; ++i) {
      const std::string name(250, static_cast<char>('b' + i % 20));
      deep += name + "/";
      REQUIRE(::mkdir(name.c_str(), 0700) == 0);
      std::filesystem::current_path(name);
      std::ofstream("x.jpg").put('x');
    }
  }
  ScanCounts counts;
  const auto paths = walk({tree.root(), {}, false, {}}, counts);
  CHECK(paths.size() > 10);
  CHECK(paths.size() < 21);
  CHECK(std::find(paths.begin(), paths.end(), "a.jpg") != paths.end());
  CHECK(counts[Skip::unreadable_folder].count == 1);
  CHECK(counts.summary().starts_with("1 folder that cannot be listed ("));
  CHECK_THROWS_AS(walk(tree.path("missing")), InputError);
}

TEST_CASE("a folder without permission is counted and named, as another user (N9)") {
  const TestTree tree;
  tree.file("a.jpg");
  tree.file("shut/b.jpg");
  REQUIRE(::chmod(tree.root().c_str(), 0755) == 0);
  REQUIRE(::chmod(tree.path("shut").c_str(), 0000) == 0);
  const bool root = ::geteuid() == 0;
  if (root) REQUIRE(::seteuid(65534) == 0);
  ScanCounts counts;
  const auto paths = walk({tree.root(), {}, false, {}}, counts);
  if (root) REQUIRE(::seteuid(0) == 0);
  REQUIRE(::chmod(tree.path("shut").c_str(), 0700) == 0);
  CHECK(paths == Names{"a.jpg"});
  CHECK(counts[Skip::unreadable_folder].first == Names{"shut"});
}

TEST_CASE("a walk with a glob enters only folders in which the glob can match") {
  const TestTree tree;
  for (const char* name : {"day1/a.jpg", "day1/b.dat", "day2/c.jpg", "night/d.jpg", "day1/deep/e.jpg", ".h/f.jpg",
                           "g.jpg", "day2/v.mp4"}) {
    tree.file(name);
  }
  const auto glob = [&](const char* pattern, ScanCounts& counts) {
    return walk({tree.root(), Glob(pattern), false, {}}, counts);
  };
  ScanCounts counts;
  CHECK(glob("day*/*.jpg", counts) == Names{"day1/a.jpg", "day2/c.jpg"});
  CHECK(counts[Skip::not_matched].count == 3);
  CHECK(glob("**/*.jpg", counts) == Names{"day1/a.jpg", "day1/deep/e.jpg", "day2/c.jpg", "g.jpg", "night/d.jpg"});
  CHECK(glob("day?", counts) == Names{"day1/a.jpg", "day1/deep/e.jpg", "day2/c.jpg"});
  CHECK(glob("*/*.dat", counts) == Names{"day1/b.dat"});
  CHECK(glob("*/*.{dat,jpg}", counts) == Names{"day1/a.jpg", "day1/b.dat", "day2/c.jpg", "night/d.jpg"});
  CHECK(glob(".h/*", counts) == Names{".h/f.jpg"});
  CHECK(glob("day1/*", counts) == Names{"day1/a.jpg", "day1/deep/e.jpg"});
}

TEST_CASE("a folder gives the first of its DICOM files, which are slices of one volume") {
  const TestTree tree;
  for (const char* name : {"a/2.dcm", "a/10.dcm", "a/9.DCM", "a/.0.dcm", "a/b/3.dcm", "a/b/1.jpg", "a/b/4.dcm", "a.dcm",
                           "b/x.dcm", "b/y.jpg"}) {
    tree.file(name);
  }
  tree.file("c/z.dcm");
  tree.link("../a/2.dcm", "c/link.dcm");
  ScanCounts counts;
  CHECK(walk({tree.root(), {}, false, {}}, counts) ==
        Names{"a/10.dcm", "a/b/1.jpg", "a/b/3.dcm", "a.dcm", "b/x.dcm", "b/y.jpg", "c/link.dcm"});
  CHECK(counts.total_skipped() == 1);  // the hidden one
  CHECK(walk({tree.root(), Glob("a/[29].dcm"), false, {}}, counts) == Names{"a/2.dcm"});
}

TEST_CASE("excluded folders are not entered, and a stop ends the walk") {
  const TestTree tree;
  tree.file("a.jpg");
  tree.file("out/b.jpg");
  struct stat status {};
  REQUIRE(::stat(tree.path("out").c_str(), &status) == 0);
  ScanCounts counts;
  CHECK(walk({tree.root(), {}, false, {{status.st_dev, status.st_ino}}}, counts) == Names{"a.jpg"});
  CHECK(counts[Skip::output_folder].count == 1);

  std::stop_source stop;
  FolderWalk stopped({tree.root(), {}, false, {}}, counts, stop.get_token());
  std::string path;
  CHECK(stopped.next(path));
  stop.request_stop();
  CHECK_FALSE(stopped.next(path));
}

}  // namespace
}  // namespace millrace
