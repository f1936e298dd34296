#include "tools/plan/widths_search.h"

#include <algorithm>
#include <bit>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <utility>

#include "core/base/check.h"
#include "core/base/status.h"

namespace moed {
namespace {

std::string Percent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g %%", share * 100);
  return text;
}

class Search {
 public:
  Search(const WidthsQuestion& question, NatsOf nats_of, WidthsPlan plan = {})
      : question_(question), nats_of_(nats_of), plan_(std::move(plan)) {}

  absl::StatusOr<WidthsPlan> Run() {
    MOED_ASSIGN_OR_RETURN(plan_.reference_nats, nats_of_(Uniform(kReferencePrecision)));
    MOED_RETURN_IF_ERROR(Bracket());
    if (plan_.upper == plan_.lower) {  // the narrowest does
      plan_.lowered = question_.experts;
      MOED_RETURN_IF_ERROR(Accept(Uniform(question_.widths[plan_.lower].precision)));
      return plan_;
    }
    MOED_RETURN_IF_ERROR(Rank());
    MOED_RETURN_IF_ERROR(Grow());
    return plan_;
  }

  absl::StatusOr<WidthsPlan> Confirm(ConfirmedLossOf confirmed_of) {
    const auto look = [&](const std::vector<Precision>& precisions) -> absl::Status {
      MOED_ASSIGN_OR_RETURN(plan_.confirmed, confirmed_of(precisions, 1 - (1 - question_.confidence) / kConfirmLooks));
      plan_.confirmed->holds = plan_.confirmed->bound <= question_.tolerable_loss;
      return absl::OkStatus();
    };
    MOED_RETURN_IF_ERROR(look(plan_.precisions));
    if (plan_.confirmed->holds) return plan_;
    if (plan_.upper == plan_.lower) --plan_.upper;  // there are two widths at least
    if (plan_.importance.empty()) {
      MOED_RETURN_IF_ERROR(Rank());
    } else {
      Sort();
    }
    int within = 0, beyond = plan_.lowered;
    std::optional<ConfirmedLoss> best;
    for (int looks = 2; looks < kConfirmLooks && beyond - within > 1; ++looks) {
      const int middle = within + (beyond - within) / 2;
      MOED_RETURN_IF_ERROR(look(Lowered(middle)));
      if (plan_.confirmed->holds) best = plan_.confirmed;
      (plan_.confirmed->holds ? within : beyond) = middle;
    }
    if (best) {
      plan_.confirmed = best;
    } else {
      MOED_RETURN_IF_ERROR(look(Lowered(0)));
    }
    plan_.lowered = within;
    MOED_RETURN_IF_ERROR(Accept(Lowered(within)));
    return plan_;
  }

 private:
  std::vector<Precision> Uniform(Precision precision) const { return std::vector<Precision>(question_.experts, precision); }
  absl::StatusOr<double> Loss(const std::vector<Precision>& precisions) {
    MOED_ASSIGN_OR_RETURN(const double nats, nats_of_(precisions));
    return std::expm1(nats - plan_.reference_nats);
  }

  absl::Status Bracket() {
    for (const Width& width : question_.widths) {
      MOED_ASSIGN_OR_RETURN(const double loss, Loss(Uniform(width.precision)));
      plan_.uniform_losses.push_back(loss);
    }
    const auto& losses = plan_.uniform_losses;
    const auto first_over = std::find_if(losses.begin(), losses.end(), [&](double l) { return l > question_.tolerable_loss; });
    if (first_over == losses.begin()) return NoWidthReaches();
    plan_.upper = first_over - losses.begin() - 1;
    plan_.lower = std::min(plan_.upper + 1, losses.size() - 1);
    return absl::OkStatus();
  }

  absl::Status NoWidthReaches() const {
    std::string all;
    for (size_t i = 0; i < question_.widths.size(); ++i) {
      all += StrCat(i == 0 ? "" : ", ", question_.widths[i].name, " ", Percent(plan_.uniform_losses[i]));
    }
    return absl::OutOfRangeError(StrCat("a loss of ", Percent(question_.tolerable_loss), " is less than ",
                                        question_.widths[0].name, " reaches; with all experts at one width: ", all));
  }

  absl::Status Rank() {
    const Precision narrowest = question_.widths.back().precision;
    const std::vector<Precision> rest = Uniform(question_.widths[question_.widths.size() - 2].precision);
    MOED_ASSIGN_OR_RETURN(const double rest_nats, nats_of_(rest));
    for (int expert = 0; expert < question_.experts; ++expert) {
      std::vector<Precision> precisions = rest;
      precisions[expert] = narrowest;
      MOED_ASSIGN_OR_RETURN(const double nats, nats_of_(precisions));
      plan_.importance.push_back(nats - rest_nats);
    }
    Sort();
    return absl::OkStatus();
  }

  void Sort() {
    by_importance_.resize(question_.experts);
    std::iota(by_importance_.begin(), by_importance_.end(), 0);
    std::stable_sort(by_importance_.begin(), by_importance_.end(),
                     [&](int a, int b) { return plan_.importance[a] < plan_.importance[b]; });
  }

  std::vector<Precision> Lowered(int count) const {
    std::vector<Precision> precisions = Uniform(question_.widths[plan_.upper].precision);
    for (int i = 0; i < count; ++i) precisions[by_importance_[i]] = question_.widths[plan_.lower].precision;
    return precisions;
  }

  // None lowered is known to be within the loss, all of them beyond it.
  absl::Status Grow() {
    int within = 0, beyond = question_.experts;
    while (beyond - within > 1) {
      const int middle = within + (beyond - within) / 2;
      MOED_ASSIGN_OR_RETURN(const double loss, Loss(Lowered(middle)));
      (loss <= question_.tolerable_loss ? within : beyond) = middle;
    }
    plan_.lowered = within;
    return Accept(Lowered(within));
  }

  absl::Status Accept(std::vector<Precision> precisions) {
    MOED_ASSIGN_OR_RETURN(plan_.nats, nats_of_(precisions));
    plan_.loss = std::expm1(plan_.nats - plan_.reference_nats);
    plan_.precisions = std::move(precisions);
    return absl::OkStatus();
  }

  const WidthsQuestion& question_;
  const NatsOf nats_of_;
  WidthsPlan plan_;
  std::vector<int> by_importance_;  // least first
};

}  // namespace

absl::StatusOr<WidthsPlan> SearchWidths(const WidthsQuestion& question, NatsOf nats_of) {
  MOED_CHECK(question.widths.size() >= 2 && question.experts > 0);
  return Search(question, nats_of).Run();
}

absl::Status ConfirmWidths(const WidthsQuestion& question, NatsOf nats_of, ConfirmedLossOf confirmed_of, WidthsPlan& plan) {
  MOED_ASSIGN_OR_RETURN(plan, Search(question, nats_of, plan).Confirm(confirmed_of));
  return absl::OkStatus();
}

ConfirmedLoss BoundLoss(std::span<const double> nats, std::span<const int> tokens, double confidence) {
  MOED_CHECK(nats.size() == tokens.size() && nats.size() >= 2);
  const auto pieces = static_cast<double>(nats.size());
  const double all = std::accumulate(tokens.begin(), tokens.end(), 0.0);
  const double mean = std::accumulate(nats.begin(), nats.end(), 0.0) / all;
  double squares = 0;
  for (size_t i = 0; i < nats.size(); ++i) squares += std::pow(nats[i] - mean * tokens[i], 2);
  const double error = std::sqrt(squares * pieces / (pieces - 1)) / all;
  const double students = boost::math::quantile(boost::math::students_t(pieces - 1), confidence);
  return {.loss = std::expm1(mean), .bound = std::expm1(mean + students * error)};
}

int MostMeasurements(const WidthsQuestion& question) {
  const bool reference_is_a_width = std::any_of(question.widths.begin(), question.widths.end(),
                                                [](const Width& w) { return w.precision == kReferencePrecision; });
  return (reference_is_a_width ? 0 : 1) + static_cast<int>(question.widths.size()) + question.experts +
         std::bit_width(static_cast<unsigned>(question.experts)) + (question.confidence > 0 ? 1 : 0);
}

}  // namespace moed
