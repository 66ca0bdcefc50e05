// base/quantile.hpp — constants of the normal quantile function.
//
// Wichura, "Algorithm AS 241", Applied Statistics 37 (1988), routine PPND16:
// three ratios of polynomials, lowest power first, for the centre (A/B), the
// tails (C/D) and the far tails (E/F). Shared by the scalar and the vector
// form so that the two cannot drift apart.
#pragma once

#include <cstdint>

namespace laconic::quantile {

inline constexpr double kA[8] = {3.3871328727963666080e0, 1.3314166789178437745e2,
                                 1.9715909503065514427e3, 1.3731693765509461125e4,
                                 4.5921953931549871457e4, 6.7265770927008700853e4,
                                 3.3430575583588128105e4, 2.5090809287301226727e3};
inline constexpr double kB[8] = {1.0,
                                 4.2313330701600911252e1,
                                 6.8718700749205790830e2,
                                 5.3941960214247511077e3,
                                 2.1213794301586595867e4,
                                 3.9307895800092710610e4,
                                 2.8729085735721942674e4,
                                 5.2264952788528545610e3};
inline constexpr double kC[8] = {1.42343711074968357734e0,  4.63033784615654529590e0,
                                 5.76949722146069140550e0,  3.64784832476320460504e0,
                                 1.27045825245236838258e0,  2.41780725177450611770e-1,
                                 2.27238449892691845833e-2, 7.74545014278341407640e-4};
inline constexpr double kD[8] = {1.0,
                                 2.05319162663775882187e0,
                                 1.67638483018380384940e0,
                                 6.89767334985100004550e-1,
                                 1.48103976427480074590e-1,
                                 1.51986665636164571966e-2,
                                 5.47593808499534494600e-4,
                                 1.05075007164441684324e-9};
inline constexpr double kE[8] = {6.65790464350110377720e0,  5.46378491116411436990e0,
                                 1.78482653991729133580e0,  2.96560571828504891230e-1,
                                 2.65321895265761230930e-2, 1.24266094738807843860e-3,
                                 2.71155556874348757815e-5, 2.01033439929228813265e-7};
inline constexpr double kF[8] = {1.0,
                                 5.99832206555887937690e-1,
                                 1.36929880922735805310e-1,
                                 1.48753612908506148525e-2,
                                 7.86869131145613259100e-4,
                                 1.84631831751005468180e-5,
                                 1.42151175831644588870e-7,
                                 2.04426310338993978564e-15};

// 1/3, 1/5, ... of atanh(s) = s + s^3/3 + s^5/5 + ...
inline constexpr double kAtanh[10] = {1.0 / 3,  1.0 / 5,  1.0 / 7,  1.0 / 9,  1.0 / 11,
                                      1.0 / 13, 1.0 / 15, 1.0 / 17, 1.0 / 19, 1.0 / 21};
inline constexpr double kLn2 = 0.69314718055994530942;
// bits(2.0) - bits(sqrt(2)), as an addend to the bits of a double.
inline constexpr std::uint64_t kSqrtHalfCarry = 0x4000000000000000 - 0x3FF6A09E667F3BCD;

}  // namespace laconic::quantile
