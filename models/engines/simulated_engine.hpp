#pragma once

#include <map>
#include <memory>
#include <string>

#include "gpu/streams/simulated_stream.hpp"
#include "models/engine.hpp"

namespace millrace {

/// The time of a model's call in seconds: `call_s`, plus `each_s` for each picture (or box of a decoder).
struct SimulatedCall {
  double call_s = 0, each_s = 0;
};

/// The times of a simulated GPU.
struct SimulatedTable {
  std::string file;  ///< from which it was read
  std::string name;
  SimulatedRates rates;
  std::map<std::string, SimulatedCall, std::less<>> calls;  ///< by method
};

/// Reads a table, such as bench/host/h200.yaml. In it, `letterbox_ms` is the time of the operation `letterbox`.
/// Throws PackageError, which names file and key.
SimulatedTable read_simulated_table(const std::string& file);

/// An engine that computes nothing: its calls take the time of the table, and its outputs mean nothing.
/// Its devices must have a SimulatedStream. Throws PackageError if the table lacks a method of the package.
std::shared_ptr<Engine> make_simulated_engine(const Package& package, std::shared_ptr<const SimulatedTable> table,
                                              Precision precision);

}  // namespace millrace
