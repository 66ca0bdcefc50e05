// engine/progress_thread.hpp — a thread that walks many operations at once.
//
// An operation (a collective, as a rule) is a list of small acts, some of which
// wait for a message. advance() goes as far as it can without waiting. The
// progress thread asks the most urgent operations first, sleeps until something
// arrives, and so keeps every link busy with one thread and no matter how many
// operations are under way. An advance() may encode for tens of milliseconds;
// after it the progress thread looks first at all that is more urgent, what was started
// meanwhile included, and only then at what is less.
//
// The meter gets, per traffic class, the time with at least one operation under
// way (active) and the time inside wait() and wait_all() (exposed); the same by axes where the
// class has_axes().
//
// Thread-safe, except that an operation is only ever touched by the progress thread
// between start() and the end of wait() or drop().
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "laconic/engine/engine.hpp"

namespace laconic {

class Operation {
 public:
  virtual ~Operation() = default;
  // True when it is done. Called from the progress thread only.
  virtual bool advance(Engine& engine) = 0;
  virtual DeadlineKey key() const = 0;
  virtual Traffic traffic() const = 0;
  virtual std::uint32_t unit() const { return 0; }  // of its tags: the axes, in a tensor grid
  // Whether it waits, since the last advance(), for something that wakes nobody when it comes: work
  // of a GPU. It is then asked every kPollPeriod. Called from the progress thread only.
  virtual bool polls() const { return false; }
  // For messages: "all_reduce of dp.gradient 2, waiting for rank 3".
  virtual std::string describe() const = 0;
};

inline constexpr std::chrono::microseconds kPollPeriod{50};

class ProgressThread {
 public:
  // Whoever observes the engine hears of every operation that is done, before any wait for it ends,
  // and of every wait.
  explicit ProgressThread(Engine& engine);
  ~ProgressThread();  // stops; operations under way are dropped
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;

  Engine& engine();

  void start(std::shared_ptr<Operation> operation);
  // Until this one, or all, are done. Counts as exposed time of their traffic class. Throws what
  // advance() threw, or Timeout with describe() when nothing moved for the engine's deadline: no
  // operation started or ended, no segment came or left.
  // After a failure every operation is dropped, and every later call throws the same.
  void wait(const std::shared_ptr<Operation>& operation);
  void wait_all();
  // Whether wait() would return, or throw, at once.
  bool has_ended(const std::shared_ptr<Operation>& operation) const;
  // Ends it as it is, if it is under way: when this returns, the progress thread does not touch it
  // any more, nor what it writes to. For those whose buffers go before the progress thread does;
  // the other ranks are not told.
  void drop(const std::shared_ptr<Operation>& operation);

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

// In the calling thread, without a progress thread: active and exposed all the time. Throws as
// wait() does.
void run(Engine& engine, Operation& operation);

}  // namespace laconic
