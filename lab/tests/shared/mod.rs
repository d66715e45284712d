//! Code that the tests over TLS share with the tests on a real control plane: a bench, and stories. Each
//! story runs on the embedded Kubernetes and on a real one, which shows that they behave alike.

pub mod bench;
pub mod failover;
pub mod stories;

/// Creates a test for each story. The tests run on the given Kubernetes.
macro_rules! play_on {
    ($kubernetes:ty) => {
        crate::shared::play_on! { $kubernetes:
            a_pool_scales_from_zero,
            ten_nodes_come_at_once,
            a_pool_at_its_maximum_grows_no_further,
            a_join_that_fails_leaves_nothing_behind,
            a_node_goes_after_the_unneeded_time_and_not_before,
            a_budget_refuses_for_a_while_and_then_allows,
            a_daemon_that_was_killed_goes_on_where_it_was,
            a_node_is_as_its_pool_says,
            a_join_without_an_answer_is_given_up,
            a_guest_that_boots_again_goes_on_under_its_name,
            a_host_goes_offline_and_its_pods_get_a_node_elsewhere,
            a_host_goes_offline_and_its_stateful_set_moves,
            kubernetes_is_away_for_a_while,
            a_token_that_has_run_out_costs_that_machine_only,
            a_ca_that_is_not_the_pinned_one_is_refused_and_told,
        }
        #[tokio::test(flavor = "multi_thread")]
        async fn another_daemon_goes_on_when_the_one_that_leads_dies_or_ends() {
            crate::shared::failover::another_daemon_goes_on_when_the_one_that_leads_dies_or_ends::<$kubernetes>().await;
        }
    };
    ($kubernetes:ty: $($story:ident),* $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $story() {
                crate::shared::stories::$story::<$kubernetes>().await;
            }
        )*
    };
}
pub(crate) use play_on;
