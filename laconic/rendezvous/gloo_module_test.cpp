// The module alone, without libtorch, in a program that has false_gloo linked.
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "laconic/base/plugin.hpp"
#include "laconic/rendezvous/gloo_engine.hpp"
#include "laconic/rendezvous/socket.hpp"

extern "C" int false_gloo_calls();

namespace laconic {
namespace {

using std::chrono::milliseconds;

constexpr const char* kHere = "127.0.0.1";

PluginSpec spec() {
  return {kGlooModule, kGlooInterface, ""};
}

std::unique_ptr<GlooEngine> make_engine(MakeGlooEngine make) {
  std::string error;
  std::unique_ptr<GlooEngine> engine(make(kHere, error));
  EXPECT_EQ(error, "");
  return engine;
}

// Gives gloo one end of a connection, as gloo_context.cpp does.
void give(GlooMesh& mesh, int peer, int end) {
  std::string error;
  const int port = mesh.listen(peer, error);
  ASSERT_GT(port, 0) << error;
  const Socket own = begin_connecting(kHere, port);
  ASSERT_TRUE(mesh.accept(peer));
  const int descriptor = find_other_end(own);
  ASSERT_GE(descriptor, 0);
  ASSERT_GE(::dup3(end, descriptor, O_CLOEXEC), 0);
  ::close(end);
  EXPECT_EQ(mesh.watch(peer, descriptor), "");
}

struct Pair {
  std::unique_ptr<GlooEngine> engine;
  std::array<std::unique_ptr<GlooMesh>, 2> mesh;

  explicit Pair(MakeGlooEngine make) : engine(make_engine(make)) {
    std::string error;
    for (int r = 0; r < 2; ++r) mesh[r] = engine->make_mesh(r, 2, milliseconds{20'000}, error);
    int ends[2] = {-1, -1};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    for (int r = 0; r < 2; ++r) give(*mesh[r], 1 - r, ends[r]);
  }
  ~Pair() {
    for (int r = 0; r < 2; ++r) mesh[r]->drop(1 - r);
  }
};

MakeGlooEngine open_module() {
  return reinterpret_cast<MakeGlooEngine>(open_plugin(spec()));
}

// Without it the next test would prove nothing. First, since it forks.
TEST(GlooModuleDeathTest, OpenedAsUsualItCallsWhoeverExportsItsNames) {
  EXPECT_EXIT(
      {
        void* const module = ::dlopen(find_plugin(kGlooModule)->c_str(), RTLD_NOW | RTLD_LOCAL);
        const auto make = reinterpret_cast<MakeGlooEngine>(::dlsym(module, "laconic_plugin_entry"));
        std::string error;
        make(kHere, error);
        std::_Exit(0);
      },
      testing::ExitedWithCode(42), "");
}

TEST(GlooModule, OpenedAsAModuleItAndLibglooCallEachOtherAlone) {
  const Pair pair(open_module());
  std::array<std::byte, 2> memory{std::byte{7}, std::byte{0}};
  std::string error;
  const auto from = pair.mesh[0]->make_buffer(&memory[0], 1, error);
  const auto to = pair.mesh[1]->make_buffer(&memory[1], 1, error);
  EXPECT_EQ(to->recv(0, 3, 0, 1), "");
  EXPECT_EQ(from->send(1, 3, 0, 1), "");
  EXPECT_EQ(to->wait_recv(error), GlooWait::done);
  EXPECT_EQ(from->wait_send(error), GlooWait::done);
  EXPECT_EQ(memory[1], std::byte{7});
  EXPECT_EQ(false_gloo_calls(), 0);
}

TEST(GlooModule, SumsAndSaysInWordsWhenItCannot) {
  std::signal(SIGPIPE, SIG_IGN);  // as make_gloo() does: gloo writes to who has gone
  const Pair pair(open_module());
  std::array<std::array<float, 3>, 2> values{{{1, 2, 3}, {10, 20, 30}}};
  std::array<std::string, 2> errors;
  const auto sum_both = [&] {
    std::thread other([&] { errors[1] = pair.mesh[1]->sum(values[1], milliseconds{10'000}); });
    errors[0] = pair.mesh[0]->sum(values[0], milliseconds{10'000});
    other.join();
  };
  sum_both();
  EXPECT_EQ(errors[0] + errors[1], "");
  for (const auto& sums : values) EXPECT_EQ(sums, (std::array<float, 3>{11, 22, 33}));
  pair.mesh[0]->abandon();
  sum_both();
  EXPECT_NE(errors[0], "");
  EXPECT_NE(errors[1], "");
}

TEST(GlooModule, AWaitThatIsLetGoIsNoFailure) {
  const Pair pair(open_module());
  std::byte memory{};
  std::string error;
  const auto buffer = pair.mesh[0]->make_buffer(&memory, 1, error);
  EXPECT_EQ(buffer->recv(1, 5, 0, 1), "");
  std::thread waker([&] { buffer->abort_wait_recv(); });
  EXPECT_EQ(buffer->wait_recv(error), GlooWait::let_go);
  waker.join();
  EXPECT_EQ(error, "");
  EXPECT_NE(buffer->send(1, 5, 0, 2), "");  // more than there is
}

// Asked for in this thread, they begin in gloo's, which may come to it when pair and buffer have
// gone.
TEST(GlooModule, PairsAndBuffersMayGoBeforeWhatTheyWereAskedForHasBegun) {
  std::signal(SIGPIPE, SIG_IGN);
  for (int turn = 0; turn < 20; ++turn) {
    const Pair pair(open_module());
    std::vector<std::byte> memory(4096);
    std::string error;
    auto buffer = pair.mesh[0]->make_buffer(memory.data(), memory.size(), error);
    for (std::uint64_t slot = 0; slot < 20; ++slot) {
      EXPECT_EQ(buffer->send(1, slot, 0, memory.size()), "");
      EXPECT_EQ(buffer->recv(1, slot, 0, memory.size()), "");
    }
    if (turn % 2 == 0)
      buffer.reset();
    else
      pair.mesh[0]->drop(1);
  }
}

TEST(GlooModule, WhatFailsWhenItBeginsIsToldToWhoeverWaitsAndToTheNext) {
  std::signal(SIGPIPE, SIG_IGN);
  const Pair pair(open_module());
  std::byte memory{};
  std::string error;
  const auto buffer = pair.mesh[0]->make_buffer(&memory, 1, error);
  pair.mesh[0]->abandon();  // gloo refuses whatever is asked of these connections from now on
  EXPECT_EQ(buffer->recv(1, 5, 0, 1), "");
  EXPECT_EQ(buffer->wait_recv(error), GlooWait::failed);
  EXPECT_NE(error, "");
  EXPECT_NE(buffer->recv(1, 6, 0, 1), "");
  EXPECT_EQ(buffer->send(1, 5, 0, 1), "");
  EXPECT_EQ(buffer->wait_send(error), GlooWait::failed);
  EXPECT_NE(buffer->send(1, 6, 0, 1), "");
}

TEST(GlooModule, AnAddressOfAnotherMachineIsRefusedInWords) {
  std::string error;
  const std::unique_ptr<GlooEngine> engine(open_module()("192.0.2.1", error));
  EXPECT_EQ(engine, nullptr);
  EXPECT_NE(error, "");
}

}  // namespace
}  // namespace laconic
