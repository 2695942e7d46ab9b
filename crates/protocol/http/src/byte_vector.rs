//! `ByteVector`: 16 bytes that are compared at once.
//!
//! On x86-64, of which every processor has SSE2, it is made of the functions of safe_arch: the crate wide, which is made of
//! the same and gives the same instructions, took longer to build than any other crate below an application.

#[cfg(not(target_arch = "x86_64"))]
pub(crate) use wide::u8x16 as ByteVector;

#[cfg(target_arch = "x86_64")]
pub(crate) use sse2::ByteVector;

#[cfg(target_arch = "x86_64")]
mod sse2 {
    use std::ops::{BitAnd, BitOr, Not};

    use safe_arch::{
        cmp_eq_mask_i8_m128i, m128i, max_u8_m128i, min_u8_m128i, move_mask_i8_m128i,
        set_splat_i8_m128i,
    };

    /// 16 bytes.
    #[derive(Clone, Copy)]
    pub(crate) struct ByteVector(m128i);

    impl ByteVector {
        #[inline]
        pub(crate) fn new(bytes: [u8; 16]) -> Self {
            Self(m128i::from(bytes))
        }

        #[inline]
        pub(crate) fn splat(byte: u8) -> Self {
            Self(set_splat_i8_m128i(byte.cast_signed()))
        }

        #[inline]
        pub(crate) fn to_array(self) -> [u8; 16] {
            self.0.into()
        }

        /// Of each place, the larger byte.
        #[inline]
        pub(crate) fn max(self, other: Self) -> Self {
            Self(max_u8_m128i(self.0, other.0))
        }

        /// Of each place, the smaller byte.
        #[inline]
        pub(crate) fn min(self, other: Self) -> Self {
            Self(min_u8_m128i(self.0, other.0))
        }

        /// All bits of the places where both are equal.
        #[inline]
        pub(crate) fn simd_eq(self, other: Self) -> Self {
            Self(cmp_eq_mask_i8_m128i(self.0, other.0))
        }

        /// All bits of the places where they differ.
        #[inline]
        pub(crate) fn simd_ne(self, other: Self) -> Self {
            !self.simd_eq(other)
        }

        /// The highest bit of each place.
        #[inline]
        pub(crate) fn to_bitmask(self) -> u32 {
            move_mask_i8_m128i(self.0).cast_unsigned()
        }
    }

    impl BitAnd for ByteVector {
        type Output = Self;

        #[inline]
        fn bitand(self, other: Self) -> Self {
            Self(self.0 & other.0)
        }
    }

    impl BitOr for ByteVector {
        type Output = Self;

        #[inline]
        fn bitor(self, other: Self) -> Self {
            Self(self.0 | other.0)
        }
    }

    impl Not for ByteVector {
        type Output = Self;

        #[inline]
        fn not(self) -> Self {
            Self(!self.0)
        }
    }
}
