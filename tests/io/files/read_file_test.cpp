#include <doctest/doctest.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/files/read_file.hpp"

using namespace millrace;
namespace fs = std::filesystem;

namespace {

/// A folder that is removed at the end of the test.
struct Folder {
  fs::path path;
  Folder() {
    std::string name = (fs::temp_directory_path() / "read_file_XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~Folder() { fs::remove_all(path); }
  std::string operator/(const std::string& name) const { return (path / name).string(); }
  std::string file(const std::string& name, const std::string& content) const {
    std::ofstream(*this / name, std::ios::binary) << content;
    return *this / name;
  }
};

Reason reason_of(const std::string& path, const FileExpectations& expected = {}, const ReadCall& call = ::read) {
  try {
    read_file(path, expected, call);
  } catch (const PictureError& error) {
    return error.reason();
  }
  FAIL("read_file() did not fail");
  return Reason::internal;
}

std::string text(const FileBytes& bytes) { return {bytes.data.get(), bytes.data.get() + bytes.size}; }

}  // namespace

TEST_CASE("read_file: content, size and time") {
  const Folder folder;
  std::string content(300'000, 'x');
  for (std::size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 31 >> 2);
  const std::string path = folder.file("a\n\xff.jpg", content);
  const FileBytes bytes = read_file(path, {});
  CHECK(text(bytes) == content);
  CHECK(text(read_file(path, {.bytes = 300'000, .mtime_ns = bytes.mtime_ns, .max_bytes = 300'000})) == content);
  CHECK(reason_of(path, {.bytes = 300'001}) == Reason::changed_since_plan);
  CHECK(reason_of(path, {.mtime_ns = bytes.mtime_ns + 1}) == Reason::changed_since_plan);
  CHECK(reason_of(path, {.max_bytes = 299'999}) == Reason::too_large);
  fs::create_symlink(path, folder / "link.jpg");
  CHECK(text(read_file(folder / "link.jpg", {})) == content);
}

TEST_CASE("read_file: files that do not exist, cannot be read, are not regular, or are empty") {
  const Folder folder;
  CHECK(reason_of(folder / "nothing.jpg") == Reason::vanished);
  CHECK(reason_of(folder.file("plain", "x") + "/below.jpg") == Reason::vanished);
  fs::create_symlink(folder / "nothing.jpg", folder / "dangling.jpg");
  CHECK(reason_of(folder / "dangling.jpg") == Reason::vanished);
  fs::create_symlink(folder / "b.jpg", folder / "a.jpg");
  fs::create_symlink(folder / "a.jpg", folder / "b.jpg");
  CHECK(reason_of(folder / "a.jpg") == Reason::vanished);
  CHECK(reason_of(folder.file("empty.jpg", "")) == Reason::empty);
  CHECK(reason_of(folder.path.string()) == Reason::not_regular);
  CHECK(reason_of("/dev/null") == Reason::not_regular);
  REQUIRE(::mkfifo((folder / "pipe.jpg").c_str(), 0600) == 0);
  CHECK(reason_of(folder / "pipe.jpg") == Reason::not_regular);  // a plain open would wait for a writer forever

  const int listener = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, (folder / "s.jpg").c_str(), sizeof address.sun_path - 1);
  REQUIRE(::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  CHECK(reason_of(folder / "s.jpg") == Reason::not_regular);
  ::close(listener);
}

TEST_CASE("read_file: a file without permission") {
  const Folder folder;
  const std::string path = folder.file("secret.jpg", "x");
  REQUIRE(::chmod(path.c_str(), 0) == 0);
  REQUIRE(::chmod(folder.path.c_str(), 0755) == 0);
  if (::geteuid() != 0) {
    CHECK(reason_of(path) == Reason::permission);
    return;
  }
  // Root can read everything, so a child process reads as nobody.
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    int code = 1;
    if (::setgid(65534) == 0 && ::setuid(65534) == 0) {
      try {
        read_file(path, {});
        code = 2;
      } catch (const PictureError& error) {
        code = error.reason() == Reason::permission ? 0 : 3;
      }
    }
    ::_exit(code);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("read_file: interrupted and short reads continue; EIO and ESTALE are retried once") {
  const Folder folder;
  const std::string content = "0123456789";
  const std::string path = folder.file("a.jpg", content);
  int calls = 0;
  const auto failing = [&](int error, int failures) {
    calls = 0;
    return [&calls, error, failures](int descriptor, void* to, std::size_t count) -> ssize_t {
      if (++calls <= failures) {
        errno = error;
        return -1;
      }
      return ::read(descriptor, to, count < 3 ? count : 3);
    };
  };
  CHECK(text(read_file(path, {}, failing(0, 0))) == content);
  CHECK(calls == 4);
  CHECK(text(read_file(path, {}, failing(EINTR, 5))) == content);
  for (const int error : {EIO, ESTALE}) {
    CHECK(text(read_file(path, {}, failing(error, 1))) == content);
    CHECK(reason_of(path, {}, failing(error, 2)) == Reason::io_error);
    CHECK(calls == 2);
  }
  CHECK(reason_of(path, {}, failing(EINVAL, 1)) == Reason::io_error);
  CHECK(calls == 1);
}

TEST_CASE("read_file: a file that changes while it is read fails") {
  const Folder folder;
  const std::string path = folder.file("a.jpg", "0123456789");
  const auto shrinking = [&](int descriptor, void* to, std::size_t count) -> ssize_t {
    fs::resize_file(path, 4);
    return ::read(descriptor, to, count);
  };
  CHECK(reason_of(path, {}, shrinking) == Reason::changed_since_plan);
  const auto growing = [&](int descriptor, void* to, std::size_t count) -> ssize_t {
    fs::resize_file(path, 400);
    return ::read(descriptor, to, count);
  };
  CHECK(reason_of(path, {}, growing) == Reason::changed_since_plan);
}

TEST_CASE("read_file: no descriptor stays open, also after failures") {
  const Folder folder;
  const std::string good = folder.file("a.jpg", "x"), empty = folder.file("b.jpg", "");
  const auto open_files = [] {
    return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
  };
  const auto before = open_files();
  for (int i = 0; i < 50; ++i) {
    read_file(good, {});
    reason_of(empty);
    reason_of(folder.path.string());
    reason_of(good, {}, [](int, void*, std::size_t) -> ssize_t {
      errno = EIO;
      return -1;
    });
  }
  CHECK(open_files() == before);
}
