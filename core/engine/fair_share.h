// Who of several has had least of what all of them want, by weight: virtual times, as of start-time fair queueing (Goyal, Vin
// and Cheng 1996, section 2). Who comes back after a while begins with the time of those that are there: nobody saves up.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

namespace moed {

// Not synchronised. Parties are numbers from 0 on, and are made when they are named.
class FairShare {
 public:
  void SetWeight(size_t party, double weight) { At(party).weight = weight; }
  // There is one more request of it, or one fewer.
  void Enter(size_t party) {
    Party& entering = At(party);
    if (entering.present == 0) entering.time = std::max(entering.time, Begin());
    ++entering.present;
  }
  void Leave(size_t party) {
    floor_ = std::max(floor_, Begin());
    --At(party).present;
  }
  void Charge(size_t party, double amount) { At(party).time += amount / At(party).weight; }

  double time(size_t party) const { return parties_[party].time; }
  double weight(size_t party) const { return parties_[party].weight; }
  double present_weight() const {  // of all that are there
    double sum = 0;
    for (const Party& party : parties_) sum += party.present > 0 ? party.weight : 0;
    return sum;
  }

 private:
  struct Party {
    double weight = 1;
    double time = 0;
    int present = 0;
  };
  Party& At(size_t party) {
    if (party >= parties_.size()) parties_.resize(party + 1);
    return parties_[party];
  }
  // The least time of those that are there.
  double Begin() const {
    double least = std::numeric_limits<double>::infinity();
    for (const Party& party : parties_) {
      if (party.present > 0) least = std::min(least, party.time);
    }
    return least == std::numeric_limits<double>::infinity() ? floor_ : least;
  }

  std::vector<Party> parties_;
  double floor_ = 0;  // the time of those that were there last
};

}  // namespace moed
