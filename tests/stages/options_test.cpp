#include "stages/options.hpp"

#include <doctest/doctest.h>

namespace millrace {
namespace {

struct Options {
  double conf = 0.25;
  int count = 3;
  bool pack = true;
  std::string name = "front";
  std::vector<std::string> classes;
  std::int64_t slab = 64 << 20;
  void visit(OptionVisitor& v) {
    v.option("conf", conf, "minimum score", {0, 1});
    v.option("count", count, "how many", {1, 100});
    v.option("pack", pack, "pack boxes");
    v.on_gpu("pack", "no");
    v.option("name", name, "what it is called", Affects::run);
    v.option("classes", classes, "these only");
    v.bytes("slab", slab, "memory of a picture", {1024, 1e12}, Affects::run);
  }
};

Options parse(const OptionValues& values) { return parse_options<Options>("detect", values); }

TEST_CASE("options without values are the defaults") {
  const Options options = parse({});
  CHECK(options.conf == 0.25);
  CHECK(options.count == 3);
  CHECK(options.pack);
  CHECK(options.name == "front");
  CHECK(options.classes.empty());
  CHECK(options.slab == 67108864);
}

TEST_CASE("values of every type") {
  const Options options = parse({{"conf", {"1e-2"}},
                                 {"count", {"100"}},
                                 {"pack", {"no"}},
                                 {"name", {"a b"}},
                                 {"classes", {"cat", "7"}},
                                 {"slab", {"2M"}}});
  CHECK(options.conf == 0.01);
  CHECK(options.count == 100);
  CHECK_FALSE(options.pack);
  CHECK(options.name == "a b");
  CHECK(options.classes == std::vector<std::string>{"cat", "7"});
  CHECK(options.slab == 2 * 1024 * 1024);
}

TEST_CASE("yes and no have four spellings each") {
  for (const char* yes : {"true", "yes", "on", "1"}) CHECK(parse({{"pack", {yes}}}).pack);
  for (const char* no : {"false", "no", "off", "0"}) CHECK_FALSE(parse({{"pack", {no}}}).pack);
}

TEST_CASE("bytes have units") {
  const auto slab = [](const char* text) { return parse({{"slab", {text}}}).slab; };
  CHECK(slab("2048") == 2048);
  CHECK(slab("2k") == 2048);
  CHECK(slab("2K") == 2048);
  CHECK(slab("1.5k") == 1536);
  CHECK(slab("3G") == std::int64_t{3} << 30);
}

TEST_CASE("an impossible value is refused with the option's name") {
  const auto refuses = [](const char* option, const std::vector<std::string>& written, const char* part) {
    INFO(option);
    CHECK_THROWS_WITH_AS(parse({{option, written}}), doctest::Contains(part), UsageError);
  };
  refuses("conf", {"high"}, "detect.conf is 'high'; it must be a number");
  refuses("conf", {"0.5x"}, "detect.conf is '0.5x'");
  refuses("conf", {""}, "detect.conf is ''");
  refuses("conf", {"nan"}, "finite");
  refuses("conf", {"inf"}, "finite");
  refuses("conf", {"1.01"}, "detect.conf is 1.01; it must be between 0 and 1");
  refuses("conf", {"0.1", "0.2"}, "takes one value, but was given 2");
  refuses("conf", {}, "takes one value, but was given 0");
  refuses("count", {"2.5"}, "it must be a whole number");
  refuses("count", {"0"}, "between 1 and 100");
  refuses("count", {"99999999999"}, "it must be a whole number");
  refuses("pack", {"perhaps"}, "it must be yes or no");
  refuses("slab", {"12Q"}, "a number of bytes");
  refuses("slab", {"M"}, "a number of bytes");
  refuses("slab", {"-1"}, "between 1k");
  refuses("slab", {"nan"}, "detect.slab");
  refuses("slab", {"-1"}, "and 1000000000000");
}

TEST_CASE("an unknown name suggests the nearest") {
  CHECK_THROWS_WITH_AS(parse({{"confidence", {"1"}}}), doctest::Contains("detect.confidence is no option"), UsageError);
  CHECK_THROWS_WITH_AS(parse({{"cuont", {"1"}}}), doctest::Contains("did you mean 'detect.count'?"), UsageError);
}

TEST_CASE("options describe themselves") {
  const auto found = describe_options<Options>();
  REQUIRE(found.size() == 6);
  const auto is = [&](std::size_t i, const char* name, const char* type, const char* value, Affects affects) {
    CHECK(found[i].name == name);
    CHECK(found[i].type == type);
    CHECK(found[i].default_value == value);
    CHECK(found[i].affects == affects);
  };
  is(0, "conf", "number", "0.25", Affects::results);
  is(1, "count", "integer", "3", Affects::results);
  is(2, "pack", "yes/no", "yes", Affects::results);
  is(3, "name", "text", "front", Affects::run);
  is(4, "classes", "list", "", Affects::results);
  is(5, "slab", "bytes", "64M", Affects::run);
  CHECK(found[2].on_gpu == "no");
  CHECK(found[1].on_gpu.empty());
  CHECK(parse({}).pack);  // not the default for GPUs: parsing does not know the device
  struct Wrong {
    void visit(OptionVisitor& v) { v.on_gpu("padd", "yes"); }
  };
  CHECK_THROWS_AS(describe_options<Wrong>(), std::logic_error);
}

}  // namespace
}  // namespace millrace
