#include "stages/counters.hpp"

#include <algorithm>
#include <stdexcept>

#include "base/text.hpp"

namespace millrace {

void Counter::add(std::string_view path) {
  ++*this;
  const std::lock_guard lock(mutex_);
  named_.add(path);
}

Tally Counter::named() const {
  const std::lock_guard lock(mutex_);
  return named_;
}

Counters::Counters(const CounterInfos& infos) {
  for (const CounterInfo* info : infos) {
    const auto same_name = std::ranges::find(entries_, info->name, [](const Entry& entry) { return entry.info.name; });
    // Several stages may list one counter, but a name must mean one thing in the report.
    if (same_name == entries_.end()) {
      entries_.emplace_back(*info);
    } else if (&same_name->info != info) {
      throw std::logic_error("two counters have the name '" + std::string(info->name) +
                             "'; rename one of them where it is declared");
    }
  }
}

const Counter& Counters::operator[](const CounterInfo& info) const {
  for (const Entry& entry : entries_) {
    // By address: a misspelt counter does not compile, and the lookup needs no lock.
    if (&entry.info == &info) return entry.counter;
  }
  throw std::logic_error("counter '" + std::string(info.name) +
                         "' is counted, but no stage lists it; add it to the counters of the stage's info()");
}

Counter& Counters::operator[](const CounterInfo& info) {
  return const_cast<Counter&>(std::as_const(*this)[info]);  // the entry belongs to this object, which is not const
}

std::vector<std::pair<std::string, std::int64_t>> Counters::counts() const {
  std::vector<std::pair<std::string, std::int64_t>> all;
  for (const Entry& entry : entries_) all.emplace_back(entry.info.name, entry.counter.count());
  return all;
}

std::vector<std::string> Counters::notes() const {
  std::vector<std::string> said;
  for (const Entry& entry : entries_) {
    const Tally pictures = entry.counter.named();
    if (pictures.count == 0 || entry.info.of_many.empty()) continue;
    said.push_back(count_of(pictures.count, "picture") + " " +
                   std::string(pictures.count == 1 ? entry.info.of_one : entry.info.of_many) + ": " +
                   names_of(pictures));
  }
  return said;
}

}  // namespace millrace
