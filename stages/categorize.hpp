#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "stages/embed.hpp"

namespace millrace {

/// The likeliest classes of a picture, best first; none where no class is likely enough.
struct Categories {
  std::vector<std::pair<int, double>> top;  ///< class, probability
  std::shared_ptr<const std::vector<std::string>> names;
};
/// {"top": [[281, "tabby", 0.62451], ...]}
void write_categories(const Categories& categories, JsonWriter& json);

/// Probabilities of the classes: softmax((matrix * vector + bias) / temperature).
/// @param matrix a row of vector.size() numbers for each class, then, where `bias` says so, a number for each class
std::vector<double> class_probabilities(std::span<const float> matrix, bool bias, std::span<const float> vector,
                                        double temperature);

inline constexpr CounterInfo categorizer_calls{"categorizer_calls"};

/// Sorts whole pictures into the classes of an embedder's matrix. Reads `model_inputs`, writes a field of the stage's
/// name in the recipe. Device, one wait. Two classes of one probability stand in the order of their numbers.
class Categorize final : public LaneStage {
 public:
  static constexpr const char* name = "categorize";
  struct Options {
    std::string model;
    int top = 5;
    double threshold = 0;
    double temperature = 1;
    int exec_batch = 0;
    bool pad = false;
    void visit(OptionVisitor& v);
  };
  struct Own {
    explicit Own(std::string stage_name) : name(std::move(stage_name)) {}
    Own(const Own&) = delete;
    const std::string name;
    const Field<Categories> categories{name, write_categories};
  };
  static StageInfo info(const Options& options, const Own& own);

  Categorize(const Options& options, const StageContext& context, const Own& own);
  void run(Batch& batch) override;

 private:
  const Options options_;
  const StageContext& context_;
  const Own& own_;
  const StageModel model_;
};

}  // namespace millrace
