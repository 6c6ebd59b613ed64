#include "io/files/files.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <string>

#include "io/files/base64.hpp"
#include "tests/io/files/memory_files.hpp"
#include "tests/io/files/temporary_folder.hpp"

namespace millrace {
namespace {

int error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const StorageError& error) {
    return error.error_number();
  }
  return 0;
}

TEST_CASE("hashes have the published values") {
  CHECK(sha256_hex("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(sha256_hex("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(xxh3_64_hex("") == "2d06800538d394c2");
  CHECK(xxh32("") == 0x02CC5D05U);
  CHECK(xxh32("abc") == 0x32D153FFU);
}

TEST_CASE("a file's hash equals that of its bytes, also over several chunks") {
  const TemporaryFolder folder;
  std::string bytes((2U << 20U) + 17, 'x');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 31 + i / 1000);
  write_durably(folder.path(), "a", bytes);
  CHECK(sha256_file_hex(folder.path() + "/a") == sha256_hex(bytes));
  CHECK(xxh3_64_file_hex(folder.path() + "/a") == xxh3_64_hex(bytes));
  Xxh3 in_parts;
  in_parts.add(std::string_view(bytes).substr(0, 5));
  in_parts.add(std::string_view(bytes).substr(5));
  CHECK(in_parts.hex() == xxh3_64_hex(bytes));
}

TEST_CASE("base64 agrees with the vectors of RFC 4648 and refuses anything else") {
  const std::pair<std::string, std::string> vectors[] = {{"", ""},
                                                         {"f", "Zg=="},
                                                         {"fo", "Zm8="},
                                                         {"foo", "Zm9v"},
                                                         {"foob", "Zm9vYg=="},
                                                         {"fooba", "Zm9vYmE="},
                                                         {"\xff\xfe", "//4="}};
  for (const auto& [bytes, text] : vectors) {
    CHECK(to_base64(bytes) == text);
    CHECK(from_base64(text) == bytes);
  }
  for (const std::string text : {"Zg=", "Zg", "Z===", "====", "Zm9v\n", "Zh==", "\xff\xff\xff\xff"}) {
    CHECK_THROWS_AS(from_base64(text), std::invalid_argument);
  }
}

TEST_CASE("write_durably writes a temporary file, syncs and renames it, and syncs the folder, in this order") {
  const MemoryFiles files;
  write_durably("/out", "a.json", "hello", files);
  CHECK(files.contents() == std::map<std::string, std::string>{{"/out/a.json", "hello"}});
  CHECK(files.state->record == std::vector<std::string>{"create /out/.tmp-a.json", "write /out/.tmp-a.json",
                                                        "fsync /out/.tmp-a.json", "rename /out/a.json",
                                                        "fsync folder /out"});
}

TEST_CASE("write_durably that fails at any operation leaves the old file and no temporary file") {
  for (const int number : {ENOSPC, EIO, EDQUOT, EROFS, EXDEV, EFBIG}) {
    int failures = 0;
    for (int at = 1;; ++at) {
      const MemoryFiles files;
      write_durably("/out", "a", "old", files);
      files.restart();
      files.state->fail_at = at;
      files.state->fail_with = number;
      const int error = error_of([&] { write_durably("/out", "a", "new", files); });
      if (files.state->operations < at) break;
      if (error == 0) {
        CHECK(files.content("/out/a") == "new");  // closing a folder may fail without harm
        continue;
      }
      ++failures;
      CHECK(error == number);
      CHECK(files.contents().size() == 1);
      const std::string now = files.content("/out/a");
      CHECK((now == "old" || (now == "new" && files.state->record.back() == "rename /out/a")));
    }
    CHECK(failures == 6);  // create, write, fsync, close, rename, fsync of the folder
  }
}

TEST_CASE("interrupted, short and one-byte writes and reads are continued") {
  const MemoryFiles files;
  files.state->largest_write = 1;
  files.state->interrupt_every = 3;
  const std::string bytes = "The quick brown fox";
  write_durably("/out", "a", bytes, files);
  CHECK(files.content("/out/a") == bytes);
  CHECK(read_text_file("/out/a", 100, files) == bytes);
}

TEST_CASE("a failed sync is final: the file is not synced or written again") {
  const MemoryFiles files;
  File file("/out/a", O_WRONLY | O_CREAT, files);
  file.write_all("x");
  files.state->fail_at = files.state->operations + 1;
  CHECK(error_of([&] { file.sync(); }) == EIO);
  CHECK(error_of([&] { file.sync(); }) == EIO);
  CHECK(error_of([&] { file.sync_data(); }) == EIO);
  CHECK(error_of([&] { file.write_all("y"); }) == EIO);
  CHECK(files.state->record == std::vector<std::string>{"create /out/a", "write /out/a"});
}

TEST_CASE("the message about a full disk says how much is free") {
  try {
    File("/dev/full", O_WRONLY).write_all("12345");
    FAIL("nothing was thrown");
  } catch (const StorageError& error) {
    const std::string text = error.what();
    CAPTURE(text);
    CHECK(error.error_number() == ENOSPC);
    CHECK(error.path() == "/dev/full");
    CHECK(text.find("write 5 bytes to '/dev/full'") != std::string::npos);
    CHECK(text.find("bytes and") != std::string::npos);
    CHECK(text.find("free some space") != std::string::npos);
  }
}

TEST_CASE("read_text_file reads regular files up to its limit only, and never waits for a pipe") {
  const TemporaryFolder folder;
  write_durably(folder.path(), "a", "12345");
  write_durably(folder.path(), "empty", "");
  CHECK(read_text_file(folder.path() + "/a", 5) == "12345");
  CHECK(read_text_file(folder.path() + "/empty", 5).empty());
  CHECK(error_of([&] { read_text_file(folder.path() + "/a", 4); }) == EFBIG);
  CHECK(error_of([&] { read_text_file(folder.path() + "/none", 4); }) == ENOENT);
  CHECK(error_of([&] { read_text_file(folder.path(), 4); }) == EINVAL);
  REQUIRE(::mkfifo((folder.path() + "/pipe").c_str(), 0600) == 0);
  CHECK(error_of([&] { read_text_file(folder.path() + "/pipe", 4); }) == EINVAL);
  CHECK(file_exists(folder.path() + "/a"));
  CHECK(!file_exists(folder.path() + "/none"));
  CHECK(!file_exists(folder.path() + "/a/b"));
}

TEST_CASE("stale temporary files are removed and nothing else") {
  const MemoryFiles files;
  for (const std::string name : {".tmp-000001.jsonl", "000001.jsonl", ".tmp-", "x.tmp-", ".tm"}) {
    File("/out/" + name, O_WRONLY | O_CREAT, files).write_all("x");
  }
  CHECK(remove_stale_temporaries("/out", files) == 2);
  CHECK(list_folder("/out", files) == std::vector<std::string>{".tm", "000001.jsonl", "x.tmp-"});
}

TEST_CASE("make_folder makes one level and accepts a folder that exists") {
  const TemporaryFolder folder;
  make_folder(folder.path() + "/a");
  make_folder(folder.path() + "/a");
  CHECK(list_folder(folder.path()) == std::vector<std::string>{"a"});
  CHECK(error_of([&] { make_folder(folder.path() + "/b/c"); }) == ENOENT);
  CHECK(error_of([&] { list_folder(folder.path() + "/b"); }) == ENOENT);
}

TEST_CASE("a link in place of the temporary file is not followed") {
  const TemporaryFolder folder;
  write_durably(folder.path(), "victim", "old");
  REQUIRE(::symlink((folder.path() + "/victim").c_str(), (folder.path() + "/.tmp-a").c_str()) == 0);
  CHECK(error_of([&] { write_durably(folder.path(), "a", "new"); }) == ELOOP);
  CHECK(read_text_file(folder.path() + "/victim", 10) == "old");
}

TEST_CASE("a file knows that it was deleted") {
  const TemporaryFolder folder;
  const File file(folder.path() + "/a", O_WRONLY | O_CREAT);
  CHECK(file.still_linked());
  remove_file(folder.path() + "/a");
  CHECK(!file.still_linked());
  remove_file(folder.path() + "/a");
}

}  // namespace
}  // namespace millrace
