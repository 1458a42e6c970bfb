// Marks for plain integer code: headers that need nothing else compile for the host too, where the
// tests run them.
#pragma once

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define CUSWIGLU_HOST_DEVICE __host__ __device__ __forceinline__
#define CUSWIGLU_UNROLL _Pragma("unroll")
#else
#define CUSWIGLU_HOST_DEVICE inline
#define CUSWIGLU_UNROLL
#endif
