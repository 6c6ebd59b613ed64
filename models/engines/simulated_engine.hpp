#pragma once

#include <map>
#include <memory>
#include <string>

#include "gpu/streams/simulated_stream.hpp"
#include "models/engine.hpp"

namespace millrace {

/// Time of a model's call: a constant and a share for each picture, or for each box of a decoder.
struct SimulatedCall {
  double call_s = 0, each_s = 0;
};

/// What a GPU that is not there takes for everything it is asked for.
struct SimulatedTable {
  std::string file;  ///< that it was read from
  std::string name;
  SimulatedRates rates;
  std::map<std::string, SimulatedCall, std::less<>> calls;  ///< by method
};

/// Reads a table, such as bench/host/h200.yaml; `letterbox_ms` is the cost of the operation `letterbox`. Throws
/// PackageError that names file and key.
SimulatedTable read_simulated_table(const std::string& file);

/// An engine whose calls take the table's time and do nothing; its outputs mean nothing. For SimulatedStreams.
std::shared_ptr<Engine> make_simulated_engine(const Package& package, std::shared_ptr<const SimulatedTable> table,
                                              Precision precision);

}  // namespace millrace
