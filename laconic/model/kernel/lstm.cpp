#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "laconic/model/kernel/lstm.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
//
#include <hwy/highway.h>

#include <algorithm>

#include "laconic/model/kernel/lstm.hpp"
#include "laconic/model/kernel/vector-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace laconic::kernel::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Highway's loses NaN: a broken number must reach the loss.
template <class T>
HWY_INLINE Vec<T> safe_tanh(Vec<T> x) {
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Tanh(Tag<T>(), x));
}

// One vector of cells; the four gates lie apart.
template <class T>
struct GatesAt {
  T *i, *f, *g, *o;
};

template <class T>
HWY_INLINE void step_forward(GatesAt<T> at, const T* before, T* cell, T* out) {
  const Tag<T> d;
  const Vec<T> i = sigmoid<T>(hn::LoadU(d, at.i)), f = sigmoid<T>(hn::LoadU(d, at.f));
  const Vec<T> g = safe_tanh<T>(hn::LoadU(d, at.g)), o = sigmoid<T>(hn::LoadU(d, at.o));
  const Vec<T> c = hn::MulAdd(f, hn::LoadU(d, before), hn::Mul(i, g));
  hn::StoreU(i, d, at.i);
  hn::StoreU(f, d, at.f);
  hn::StoreU(g, d, at.g);
  hn::StoreU(o, d, at.o);
  hn::StoreU(c, d, cell);
  hn::StoreU(hn::Mul(o, safe_tanh<T>(c)), d, out);
}

// s (1 - s), the slope of a sigmoid with the value s.
template <class T>
HWY_INLINE Vec<T> slope(Vec<T> s) {
  return hn::NegMulAdd(s, s, s);
}

template <class T>
HWY_INLINE void step_backward(GatesAt<T> at, const T* before, const T* cell, const T* d_out,
                              T* d_cell) {
  const Tag<T> d;
  const Vec<T> one = hn::Set(d, T(1));
  const Vec<T> i = hn::LoadU(d, at.i), f = hn::LoadU(d, at.f), g = hn::LoadU(d, at.g),
               o = hn::LoadU(d, at.o), above = hn::LoadU(d, d_out);
  const Vec<T> bent = safe_tanh<T>(hn::LoadU(d, cell));
  const Vec<T> through_tanh = hn::Mul(hn::Mul(above, o), hn::NegMulAdd(bent, bent, one));
  const Vec<T> dc = hn::Add(hn::LoadU(d, d_cell), through_tanh);
  hn::StoreU(hn::Mul(hn::Mul(dc, g), slope<T>(i)), d, at.i);
  hn::StoreU(hn::Mul(hn::Mul(dc, hn::LoadU(d, before)), slope<T>(f)), d, at.f);
  hn::StoreU(hn::Mul(hn::Mul(dc, i), hn::NegMulAdd(g, g, one)), d, at.g);
  hn::StoreU(hn::Mul(hn::Mul(above, bent), slope<T>(o)), d, at.o);
  hn::StoreU(hn::Mul(dc, f), d, d_cell);
}

// What is left of a row behind its last whole vector, copied to where a vector has room.
template <class T>
class Rest {
 public:
  explicit Rest(std::int64_t size) : size_(size) {}
  void load(const T* from) { std::copy(from, from + size_, data_); }
  void store(T* to) const { std::copy(data_, data_ + size_, to); }
  T* data() { return data_; }

 private:
  std::int64_t size_;
  HWY_ALIGN T data_[HWY_MAX_BYTES / sizeof(T)] = {};
};

template <class T>
struct GateRests {
  explicit GateRests(std::int64_t size) : i(size), f(size), g(size), o(size) {}
  GatesAt<T> load(GatesAt<T> at) {
    i.load(at.i);
    f.load(at.f);
    g.load(at.g);
    o.load(at.o);
    return {i.data(), f.data(), g.data(), o.data()};
  }
  void store(GatesAt<T> at) const {
    i.store(at.i);
    f.store(at.f);
    g.store(at.g);
    o.store(at.o);
  }
  Rest<T> i, f, g, o;
};

template <class T>
HWY_INLINE GatesAt<T> gates_at(T* gates, std::int64_t cells, std::int64_t j) {
  return {gates + j, gates + cells + j, gates + 2 * cells + j, gates + 3 * cells + j};
}

template <class T>
void forward(T* gates, const T* before, T* cell, T* out, std::int64_t cells) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(Tag<T>()));
  std::int64_t j = 0;
  for (; j + lanes <= cells; j += lanes)
    step_forward(gates_at(gates, cells, j), before + j, cell + j, out + j);
  if (j == cells) return;
  GateRests<T> rest(cells - j);
  Rest<T> b(cells - j), c(cells - j), h(cells - j);
  b.load(before + j);
  step_forward(rest.load(gates_at(gates, cells, j)), b.data(), c.data(), h.data());
  rest.store(gates_at(gates, cells, j));
  c.store(cell + j);
  h.store(out + j);
}

template <class T>
void backward(T* gates, const T* before, const T* cell, const T* d_out, T* d_cell,
              std::int64_t cells) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(Tag<T>()));
  std::int64_t j = 0;
  for (; j + lanes <= cells; j += lanes)
    step_backward(gates_at(gates, cells, j), before + j, cell + j, d_out + j, d_cell + j);
  if (j == cells) return;
  GateRests<T> rest(cells - j);
  Rest<T> b(cells - j), c(cells - j), dh(cells - j), dc(cells - j);
  b.load(before + j);
  c.load(cell + j);
  dh.load(d_out + j);
  dc.load(d_cell + j);
  step_backward(rest.load(gates_at(gates, cells, j)), b.data(), c.data(), dh.data(), dc.data());
  rest.store(gates_at(gates, cells, j));
  dc.store(d_cell + j);
}

template <class T>
T score(const T* q, const T* k, const T* v, std::int64_t size) {
  return sum_of<T>(
      size, [](Vec<T> a, Vec<T> b, Vec<T> w) { return hn::Mul(w, safe_tanh<T>(hn::Add(a, b))); }, q,
      k, v);
}

// dq and dk get the same: d v (1 - tanh^2).
template <class T>
void score_backward(const T* q, const T* k, const T* v, T d, T* dq, T* dk, T* dv,
                    std::int64_t size) {
  const Tag<T> tag;
  const Vec<T> one = hn::Set(tag, T(1)), above = hn::Set(tag, d);
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(tag));
  const auto add = [&](const T* a, const T* b, const T* w, T* to_q, T* to_k, T* to_v) {
    const Vec<T> bent = safe_tanh<T>(hn::Add(hn::LoadU(tag, a), hn::LoadU(tag, b)));
    const Vec<T> inner = hn::Mul(hn::Mul(above, hn::LoadU(tag, w)), hn::NegMulAdd(bent, bent, one));
    hn::StoreU(hn::Add(hn::LoadU(tag, to_q), inner), tag, to_q);
    hn::StoreU(hn::Add(hn::LoadU(tag, to_k), inner), tag, to_k);
    hn::StoreU(hn::MulAdd(above, bent, hn::LoadU(tag, to_v)), tag, to_v);
  };
  std::int64_t i = 0;
  for (; i + lanes <= size; i += lanes) add(q + i, k + i, v + i, dq + i, dk + i, dv + i);
  if (i == size) return;
  Rest<T> a(size - i), b(size - i), w(size - i), to_q(size - i), to_k(size - i), to_v(size - i);
  a.load(q + i);
  b.load(k + i);
  w.load(v + i);
  to_q.load(dq + i);
  to_k.load(dk + i);
  to_v.load(dv + i);
  add(a.data(), b.data(), w.data(), to_q.data(), to_k.data(), to_v.data());
  to_q.store(dq + i);
  to_k.store(dk + i);
  to_v.store(dv + i);
}

const Additive<float>* additive_f32() {
  static constexpr Additive<float> kTable = {score<float>, score_backward<float>};
  return &kTable;
}
const Additive<double>* additive_f64() {
  static constexpr Additive<double> kTable = {score<double>, score_backward<double>};
  return &kTable;
}

const LstmCell<float>* cell_f32() {
  static constexpr LstmCell<float> kTable = {forward<float>, backward<float>};
  return &kTable;
}
const LstmCell<double>* cell_f64() {
  static constexpr LstmCell<double> kTable = {forward<double>, backward<double>};
  return &kTable;
}

}  // namespace laconic::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace laconic::kernel {

HWY_EXPORT(cell_f32);
HWY_EXPORT(cell_f64);
HWY_EXPORT(additive_f32);
HWY_EXPORT(additive_f64);

template <>
const LstmCell<float>& lstm_cell<float>() {
  return *HWY_DYNAMIC_DISPATCH(cell_f32)();
}
template <>
const LstmCell<double>& lstm_cell<double>() {
  return *HWY_DYNAMIC_DISPATCH(cell_f64)();
}

template <>
const Additive<float>& additive<float>() {
  return *HWY_DYNAMIC_DISPATCH(additive_f32)();
}
template <>
const Additive<double>& additive<double>() {
  return *HWY_DYNAMIC_DISPATCH(additive_f64)();
}

}  // namespace laconic::kernel
#endif  // HWY_ONCE
