#include "models/variant.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <utility>

#include "tests/models/package_files.hpp"

namespace millrace {
namespace {

/// A package with a variant next to it. The libraries are text: nothing here opens them.
struct Files {
  Files() {
    write_package(package_folder, segmenter_yaml());
    package = read_package(package_folder);
    write_library("encode_1.so", "one");
    write_library("encode_4.so", "four");
    write_library("decode_64.so", "boxes");
    write_yaml(yaml());
  }

  std::filesystem::path folder() const { return package_folder.string() + ".variants/cpu-avx2-fp32"; }

  void write_library(const std::string& name, const std::string& content) const {
    std::filesystem::create_directories(folder());
    write_file(folder() / name, content);
  }
  void write_yaml(const std::string& text) const { write_file(folder() / "variant.yaml", text); }

  std::string yaml() const {
    return "schema: 1\npackage: tiny-sam\nfingerprint: " + package.fingerprint + "\nsource: " + std::string(64, '0') +
           "\ndevice: cpu\ninstructions: avx2\ncpu_flags: avx2 fma\nprecision: fp32\ntorch: 2.11.0\ngate: ungated\n"
           "methods:\n"
           "  encode:\n"
           "    4: {file: encode_4.so, sha256: " +
           sha256_hex("four") +
           "}\n"
           "    1: {file: encode_1.so, sha256: " +
           sha256_hex("one") +
           "}\n"
           "  decode:\n"
           "    64: {file: decode_64.so, sha256: " +
           sha256_hex("boxes") + "}\n";
  }

  std::string error() const {
    try {
      Variant variant = read_variant(folder(), package);
      check_libraries(variant);
    } catch (const VariantError& failure) {
      return failure.what();
    }
    return "no error";
  }

  TemporaryFolder temporary{};
  std::filesystem::path package_folder = temporary.path() / "sam.pkg";
  Package package{};
};

const VariantNeeds fitting{.machine = "cpu avx2", .cpu_flags = {"sse", "fma", "avx2"}};

TEST_CASE("all of a variant is read, and its smallest calls come first") {
  const Files files;
  const Variant variant = read_variant(files.folder(), files.package);
  CHECK(variant.package == files.package.fingerprint);
  CHECK(variant.machine == "cpu avx2");
  CHECK(variant.cpu_flags == std::vector<std::string>{"avx2", "fma"});
  CHECK(variant.precision == Precision::fp32);
  CHECK(variant.torch == "2.11.0");
  CHECK(!variant.gated);
  REQUIRE(variant.methods.size() == 2);
  REQUIRE(variant.methods.at("encode").size() == 2);
  CHECK(variant.methods.at("encode")[0].rows == 1);
  CHECK(variant.methods.at("encode")[1].library == files.folder() / "encode_4.so");
  CHECK(variant.methods.at("decode")[0].rows == 64);
  // Libraries of variants that are not used need not be read.
  CHECK(variant.methods.at("encode")[0].bytes == 0);
  Variant checked = variant;
  check_libraries(checked);
  CHECK(checked.methods.at("encode")[0].bytes == 3);
  CHECK(variant.id() == "cpu-avx2-fp32 " + sha256_hex(files.yaml()).substr(0, 16));
  // How it was compiled is for people. Older variants do not say it.
  files.write_yaml(replaced(files.yaml(), "methods:\n",
                            "gpu: NVIDIA H200\ncompiler: 0123\ninductor: {freezing: yes}\ninputs: {encode: {1: "
                            "{images: [1, 3, 64, 64]}}}\nmethods:\n"));
  CHECK(read_variant(files.folder(), files.package).methods.size() == 2);
  files.write_yaml(replaced(files.yaml(), "gate: ungated", "gate: 'passed: 30 masks'"));
  CHECK(read_variant(files.folder(), files.package).gated);
}

TEST_CASE("a variant that is not what it says is refused, and the message names file and key") {
  const std::vector<std::pair<std::pair<const char*, const char*>, std::vector<const char*>>> table{
      {{"schema: 1", "schema: 2"}, {"schema", "this program reads schema 1"}},
      {{"schema: 1", "schema: ["}, {"is not valid YAML"}},
      {{"device: cpu", "device: tpu"}, {"device", "'tpu'"}},
      {{"precision: fp32", "precision: int8"}, {"precision", "'int8'"}},
      {{"torch: 2.11.0\n", ""}, {"torch", "is missing"}},
      {{"torch: 2.11.0", "torch: 2.11.0\nextra: 1"}, {"extra"}},
      {{"  encode:", "  forward:"}, {"methods.forward", "no such method"}},
      {{"    4: ", "    17: "}, {"methods.encode.17", "1 to 16"}},
      {{"    4: ", "    0: "}, {"methods.encode.0", "1 to 16"}},
      {{"    4: ", "    99999999999: "}, {"1 to 16"}},
      {{"    4: ", "    four: "}, {"methods.encode.four"}},
      {{"encode_4.so", "../encode_4.so"}, {"file", "not a plain file name"}},
      {{"encode_4.so", "encode_1.so"}, {"encode_1.so: sha256 is", "but variant.yaml says"}},
      {{"encode_4.so", "missing.so"}, {"missing.so: is missing"}},
  };
  for (const auto& [edit, says] : table) {
    CAPTURE(edit.second);
    const Files files;
    files.write_yaml(replaced(files.yaml(), edit.first, edit.second));
    const std::string error = files.error();
    CAPTURE(error);
    CHECK(error.starts_with(files.folder().string()));
    for (const char* part : says) CHECK(error.find(part) != std::string::npos);
  }
}

TEST_CASE("a variant of another package, changed libraries and files that are no text are refused") {
  const Files files;
  Package other = files.package;
  other.fingerprint = std::string(64, 'f');
  CHECK_THROWS_WITH_AS(read_variant(files.folder(), other),
                       doctest::Contains("fingerprint: it was compiled from another package ("), VariantError);
  files.write_library("encode_1.so", "changed");
  CHECK(files.error().find("encode_1.so: sha256 is") != std::string::npos);
  for (const std::string& text : {std::string(), std::string("\0\xff", 2), std::string("- a list"), std::string("{"),
                                  std::string((1 << 20) + 1, ' ')}) {
    files.write_yaml(text);
    CHECK(files.error() != "no error");
  }
  std::filesystem::remove(files.folder() / "variant.yaml");
  CHECK(files.error() != "no error");
}

TEST_CASE("a variant fits the machine and the precision that it was compiled for") {
  const Files files;
  const Variant variant = read_variant(files.folder(), files.package);
  CHECK(!misfit(variant, fitting));
  VariantNeeds other = fitting;
  other.machine = "cpu avx512";
  CHECK(misfit(variant, other) == "it is for cpu avx2, and this run uses cpu avx512");
  other = fitting;
  other.cpu_flags = {"avx2"};
  CHECK(misfit(variant, other) == "this CPU does not have fma");
  other = fitting;
  other.precision = Precision::bf16;
  CHECK(misfit(variant, other));
}

TEST_CASE("variants are looked for next to the package first, then in the user's cache") {
  const Files files;
  setenv("XDG_CACHE_HOME", (files.temporary.path() / "cache").c_str(), 1);
  Package with_slash = files.package;
  with_slash.folder = files.package_folder.string() + "/";
  const auto places = variant_places(with_slash);
  unsetenv("XDG_CACHE_HOME");
  REQUIRE(places.size() == 2);
  CHECK(places[0] == files.package_folder.string() + ".variants");
  CHECK(places[1] ==
        files.temporary.path() / "cache" / "millrace" / "variants" / files.package.fingerprint.substr(0, 16));
  std::filesystem::create_directories(places[1] / "b");
  write_file(places[1] / "b" / "variant.yaml", "");
  std::filesystem::create_directories(places[0] / "no variant");
  CHECK(variant_folders(places) == std::vector<std::filesystem::path>{files.folder(), places[1] / "b"});
  CHECK(variant_folders({"/nowhere"}).empty());
}

TEST_CASE("the flags of the first CPU") {
  const TemporaryFolder folder;
  const auto file = folder.path() / "cpuinfo";
  write_file(file, "processor\t: 0\nflags\t\t: fpu avx2 fma\nbugs\t\t: none\n\nflags\t\t: other\n");
  CHECK(cpu_flags(file) == std::vector<std::string>{"fpu", "avx2", "fma"});
  CHECK(cpu_flags(folder.path() / "nowhere").empty());
  CHECK(!cpu_flags().empty());
}

}  // namespace
}  // namespace millrace
