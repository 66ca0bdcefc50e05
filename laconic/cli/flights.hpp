// cli/flights.hpp — after a failure: what each rank recorded, brought together and explained.
//
//   FOLDER/flight/rank-3.json   what rank 3 did last (engine/recorder.hpp)
//   FOLDER/flight/verdict.txt   what all of them say
//
// Records go through the folder, if there is one, and through the rendezvous' store: either may be
// out of reach, and the store goes with rank 0. Nothing here throws: it must not
// hide the failure that brought us here.
#pragma once

#include <filesystem>
#include <string>

#include "laconic/engine/recorder.hpp"
#include "laconic/rendezvous/store.hpp"
#include "laconic/world/world.hpp"

namespace laconic {

class Flights {
 public:
  // The folder may be empty, and `store` null. Records that are older than this object are not
  // believed.
  Flights(World& world, const std::string& run_folder, Store* store);

  // This rank has lost another: leaves its record, waits some seconds for those of the others, and
  // returns the error in the words of all. The lowest rank that lost another writes the verdict.
  std::string explain(const std::string& error);

  // This rank fails by itself; the others lose it, and will want to know why.
  void leave_cause(const std::string& error);

 private:
  std::string file_of(Rank rank) const;
  Flight flight_of(const std::string& error) const;
  void leave(const Flight& flight) const;
  std::optional<Flight> find(Rank rank) const;
  std::vector<Flight> collect(const Flight& mine) const;

  World& world_;
  const std::string folder_;
  Store* const store_;
  const std::filesystem::file_time_type since_;
};

}  // namespace laconic
