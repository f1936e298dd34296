#include "core/expert/predictors/none.h"

namespace moed {
namespace {

class NoPredictor final : public ExpertPredictor {
 public:
  void Predict(SequenceId, LayerId, std::vector<Guess>&) override {}
};

}  // namespace

std::unique_ptr<ExpertPredictor> MakeNoPredictor(const PartContext&) { return std::make_unique<NoPredictor>(); }

}  // namespace moed
