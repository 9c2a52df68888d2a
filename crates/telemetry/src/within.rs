//! Futures that are in a state whenever they are polled.

/// Waits for a future whose polls are in a state; futures inside it may enter others. Returns its
/// output, and its duration in microseconds, from its first poll on.
///
/// A macro, because a future that is handed to a function is moved there and back: those of
/// requests are kilobytes long.
#[macro_export]
macro_rules! within {
    ($state:expr, $future:expr) => {{
        let mut future = ::std::pin::pin!($future);
        let mut began = ::std::option::Option::None;
        ::std::future::poll_fn(|cx| {
            let entered = $crate::enter($state);
            let began = *began.get_or_insert(entered.at());
            let output = ::std::task::ready!(::std::future::Future::poll(future.as_mut(), cx));
            ::std::task::Poll::Ready((output, entered.leave().us_since(began)))
        })
        .await
    }};
}
