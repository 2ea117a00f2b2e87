// SPDX-License-Identifier: Apache-2.0
// Are two functions called alike, as the calling convention sees it? Pointers go with pointers,
// integers and enumerations, and structures, with those of the same size.
#ifndef PARE_SIMT_SAME_CALL_H
#define PARE_SIMT_SAME_CALL_H

#include <type_traits>

template <class A, class B> constexpr bool same_argument()
{
    if (std::is_pointer<A>::value || std::is_pointer<B>::value)
        return std::is_pointer<A>::value && std::is_pointer<B>::value;
    if (std::is_class<A>::value || std::is_class<B>::value)
        return std::is_class<A>::value && std::is_class<B>::value && sizeof(A) == sizeof(B);
    bool whole = (std::is_integral<A>::value || std::is_enum<A>::value) &&
                 (std::is_integral<B>::value || std::is_enum<B>::value);
    return whole && sizeof(A) == sizeof(B);
}

template <class F, class G> struct same_call : std::false_type {
};
template <class R, class... A, class S, class... B> struct same_call<R (*)(A...), S (*)(B...)> {
    static constexpr bool check()
    {
        if constexpr (sizeof...(A) != sizeof...(B))
            return false;
        else
            return same_argument<R, S>() && (same_argument<A, B>() && ...);
    }
    static constexpr bool value = check();
};

#endif
