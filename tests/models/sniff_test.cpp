#include "models/sniff.hpp"

#include <doctest/doctest.h>

#include <system_error>

#include "tests/models/package_files.hpp"

namespace millrace {
namespace {

FileKind kind_of(const std::string& content) {
  const TemporaryFolder folder;
  write_file(folder.path() / "file", content);
  return sniff(folder.path() / "file");
}

TEST_CASE("files are recognised by their content") {
  using namespace std::literals;
  CHECK(kind_of("") == FileKind::empty);
  CHECK(kind_of("version https://git-lfs.github.com/spec/v1\n") == FileKind::git_lfs_pointer);
  CHECK(kind_of("<html><body>") == FileKind::html);
  CHECK(kind_of("\xef\xbb\xbf\n<!DocType HTML>") == FileKind::html);
  CHECK(kind_of("<?xml version='1.0'?><html xmlns=''>") == FileKind::html);
  CHECK(kind_of("\x08\x07\x12\x07pytorch:"s) == FileKind::onnx);
  CHECK(kind_of("ftrt\0\0\0\0"s) == FileKind::tensorrt);
  CHECK(kind_of("\x0e\0\0\0{\"stride\": 32}ftrt\0\0"s) == FileKind::tensorrt);
  CHECK(kind_of("\x02\0\0\0\0\0\0\0{}"s) == FileKind::safetensors);
  CHECK(kind_of("\xff\xff\xff\xff\xff\xff\xff\xff{}"s) == FileKind::unknown);
  CHECK(kind_of("GGUF\x03") == FileKind::gguf);
  CHECK(kind_of("\x89HDF\r\n\x1a\n") == FileKind::hdf5);
  CHECK(kind_of("\x1c\0\0\0TFL3\0"s) == FileKind::tflite);
  CHECK(kind_of("\x80\x02\x8a\x0a") == FileKind::legacy_pickle);
  CHECK(kind_of("x") == FileKind::unknown);
  CHECK(kind_of(std::string(100'000, ' ')) == FileKind::unknown);
}

TEST_CASE("zip archives are recognised by the names in them") {
  for (const bool zip64 : {false, true}) {
    CAPTURE(zip64);
    CHECK(kind_of(zip_of({"m/data.pkl", "m/code/__torch__.py"}, zip64)) == FileKind::torchscript);
    CHECK(kind_of(zip_of({"m/data.pkl", "m/data/0", "m/version"}, zip64)) == FileKind::pickle_checkpoint);
    CHECK(kind_of(zip_of({"m/archive_format", "m/models/model.json"}, zip64)) == FileKind::exported_program);
    CHECK(kind_of(zip_of({"readme.txt"}, zip64)) == FileKind::other_zip);
    CHECK(kind_of(zip_of({}, zip64) + std::string()) != FileKind::torchscript);
    // names that are only similar
    CHECK(kind_of(zip_of({"mycode/data.txt", "m/encode/x"}, zip64)) == FileKind::other_zip);
  }
  CHECK(kind_of("PK\x03\x04 and nothing more") == FileKind::broken_zip);
}

TEST_CASE("a torchscript file cut at any place, or with any byte changed, does not crash") {
  const std::string whole = zip_of({"m/data.pkl", "m/code/__torch__.py"}, true);
  for (std::size_t length = 4; length < whole.size(); ++length) {
    const FileKind kind = kind_of(whole.substr(0, length));
    CAPTURE(length);
    CHECK(kind == FileKind::broken_zip);
  }
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string changed = whole;
    changed[at] = static_cast<char>(~changed[at]);
    CHECK_NOTHROW(kind_of(changed));
  }
}

TEST_CASE("a file that cannot be read") { CHECK_THROWS_AS(sniff("/nonexistent/model.ts"), std::system_error); }

TEST_CASE("every kind has a description, and all kinds but TorchScript have advice") {
  for (int i = 0; i <= static_cast<int>(FileKind::unknown); ++i) {
    const auto kind = static_cast<FileKind>(i);
    CHECK_FALSE(look_of(kind).empty());
    CHECK(advice_for(kind).empty() == (kind == FileKind::torchscript));
  }
}

}  // namespace
}  // namespace millrace
