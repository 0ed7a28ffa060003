//! Templates that would exhaust the server's memory or time are stopped before that.

use mailroom_core::template::{Engine, Part, Serde, Value};

/// Each of these would take minutes, gigabytes or the whole stack if only steps and output were limited.
///
/// The test does not limit the time, which depends on the machine. What creates or copies as much shows in the memory
/// that it allocates in total, and what compares for minutes makes the test take minutes.
#[test]
fn nothing_takes_the_servers_memory_or_time() {
    const FUND: usize = 32 << 20;
    let again = |source: &str, times: usize| source.repeat(times);
    let bombs = [
        // One operation with a large result, whose size is known before the run or not.
        "{{ 'a' * 100000000 }}".to_owned(),
        "{{ (['a'] * 100000000) | length }}".to_owned(),
        again("{% set a = 'a' * 99999999 %}", 2000),
        "{{ login * 10000000000 }}".to_owned(),
        "{{ range(10000000000) | list }}".to_owned(),
        // Doubling of strings, and of lists that only look long.
        "{% set a = login %}".to_owned() + &again("{% set a = a ~ a %}", 60),
        "{% set a = login %}".to_owned() + &again("{% set a = a + a %}", 60),
        "{% set a = [1] %}".to_owned() + &again("{% set a = a + a %}", 60) + "{{ a | length }}",
        "{% set a = [1] %}".to_owned() + &again("{% set a = [a, a] %}", 60) + "{{ a }}",
        "{% set a = 1 %}".to_owned()
            + &again("{% set a = {'a': a, 'b': a} %}", 60)
            + "{{ a == 1 }}",
        "{% set a = 1 %}".to_owned()
            + &again("{% set a = (a, a) %}", 60)
            + "{{ a | string | length }}",
        // Output that is captured again.
        format!(
            "{{% set a %}}{{% for i in range(60000) %}}{}{{% endfor %}}{{% endset %}}",
            again("x", 100_000)
        ),
        format!(
            "{{% filter upper %}}{{% for i in range(60000) %}}{}{{% endfor %}}{{% endfilter %}}",
            again("x", 100_000)
        ),
        "{% for a in [[1]] recursive %}{% set b = loop([a]) %}{{ b }}{{ b }}{% endfor %}"
            .to_owned(),
        // Filters that create much from little, or compare each element with each.
        "{{ long | replace('', long) }}".to_owned(),
        "{{ long | replace('a', long) }}".to_owned(),
        "{{ range(100000) | join(long) }}".to_owned(),
        "{{ long | trim(long) }}".to_owned(),
        "{{ range(100000) | select('in', range(100000) | list) | list | length }}".to_owned(),
        format!(
            "{{{{ range(100000) | map(attribute='{}') | list }}}}",
            again("a.", 100_000)
        ),
        "{{ many | sum(start='') }}".to_owned(),
        "{{ [long, many] | sort(attribute='0') | length }}{{ (many + [long]) | min }}".to_owned(),
        "{{ (many + [long]) | sort }}".to_owned(),
        "{{ ([long] + many) | unique }}".to_owned(),
        "{% for i in range(60000) %}{{ 'x' if long == long ~ 'a' }}{% endfor %}".to_owned(),
        "{% for i in range(60000) %}{{ 'x' if 'b' in long }}{% endfor %}".to_owned(),
        "{% for i in range(60000) %}{{ 'x' if long is endingwith(long) }}{% endfor %}".to_owned(),
        "{% for i in range(60000) %}{% set a = long | upper %}{% endfor %}".to_owned(),
        "{% for i in range(60000) %}{{ 'x' if long | length == 1 }}{% endfor %}".to_owned(),
        "{% for i in range(60000) %}{{ long | float(0) }}{% endfor %}".to_owned(),
        "{% for i in range(60000) %}{{ 'x' if long[999999] == 'b' }}{% endfor %}".to_owned(),
        "{% for i in range(60000) %}{% set a = range(100000) | list %}{% endfor %}".to_owned(),
        // Nested values, and nested lazy values.
        "{% set a = 1 %}".to_owned() + &again("{% set a = [a] %}", 12_000) + "{{ a }}",
        "{% set a = range(9) %}".to_owned() + &again("{% set a = [a] %}", 500) + "{{ a }}",
    ];
    let variables = serde_json::json!({
        "login": "abcdefgh", "long": again("a", 1_000_000), "many": vec!["abcdefgh"; 50_000],
    });
    let variables = Value::from(Serde(variables));
    for bomb in bombs {
        let (outcome, memory) =
            crate::memory::measure(|| Engine::new().render(Part::Text, &bomb, &variables));
        let quote: String = bomb.chars().take(100).collect();
        let problem = outcome.expect_err(&quote).to_string();
        assert!(
            ["too much", "more than", "invalid operation", "too many"]
                .iter()
                .any(|why| problem.contains(why)),
            "{quote}: {problem}"
        );
        // The meter allows 32 MiB. A string that grows exists twice while it is copied, once with spare capacity.
        assert!(
            memory.peak <= 3 * FUND && memory.total <= 4 * FUND,
            "{quote}: {memory:?}"
        );
    }
}
