//! Structs whose fields all have one type: sizes first, then the buffers allocated for them.

macro_rules! parts {
    ($vis:vis struct $name:ident { $($field:ident),* $(,)? }) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        $vis struct $name<M> {
            $(pub $field: M,)*
        }

        #[allow(dead_code)]
        impl<M> $name<M> {
            pub fn try_map<N, E>(self, mut of: impl FnMut(M) -> Result<N, E>) -> Result<$name<N>, E> {
                Ok($name { $($field: of(self.$field)?,)* })
            }

            pub fn zip<N>(self, other: $name<N>) -> $name<(M, N)> {
                $name { $($field: (self.$field, other.$field),)* }
            }

            pub fn each_mut(&mut self) -> $name<&mut M> {
                $name { $($field: &mut self.$field,)* }
            }
        }

        #[allow(dead_code)]
        impl $name<usize> {
            pub fn numbers(&self) -> u64 {
                [$(self.$field),*].into_iter().fold(0, |sum, numbers| sum.saturating_add(numbers as u64))
            }
        }
    };
}
pub(crate) use parts;
