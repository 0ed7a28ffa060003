//! The subset of Jinja that templates may use, and the metering of all operations that create or compare values.
//!
//! The syntax tree of the engine's parser is copied. Constructs that mail does not need, and names that do not exist,
//! are refused with their places. Raw text is emitted as a value, so that it is counted wherever it is written. No
//! operation that could grow is left to the compiler's constant folding.

use minijinja::machinery::Span;
use minijinja::machinery::ast::{
    AutoEscape, BinOp, BinOpKind, Call, CallArg, Compare, CompareOp, Const, Do, EmitExpr, Expr,
    Filter, FilterBlock, ForLoop, GetAttr, GetItem, IfCond, IfExpr, List, Map, Set, SetBlock,
    Slice, Spanned, Stmt, Template, Test, Tuple, UnaryOp, UnaryOpKind, Var, WithBlock,
};
use minijinja::value::Value;

use super::meter::{
    AllowedNames, CHARGE_OUTER, CHARGE_RESULT, CHARGE_VALUE, ONLY_NUMBERS, ONLY_PRESENT,
};
use super::refusal::Refusal;

/// Checks a syntax tree, and copies it with metering.
pub struct DialectChecker<'a> {
    /// The names that templates may use.
    pub names: &'a AllowedNames,
}

type Checked<T> = Result<T, Refusal>;

impl DialectChecker<'_> {
    /// Copies the tree of a template.
    pub fn template<'s>(&self, tree: &Stmt<'s>) -> Checked<Stmt<'s>> {
        self.statement(tree)
    }

    fn statements<'s>(&self, all: &[Stmt<'s>]) -> Checked<Vec<Stmt<'s>>> {
        all.iter().map(|one| self.statement(one)).collect()
    }

    /// Copies a statement. The function is long because it has one arm for each kind of statement.
    fn statement<'s>(&self, statement: &Stmt<'s>) -> Checked<Stmt<'s>> {
        Ok(match statement {
            Stmt::Template(all) => {
                let children = self.statements(&all.children)?;
                Stmt::Template(Spanned::new(Template { children }, all.span()))
            }
            Stmt::EmitExpr(emit) => Stmt::EmitExpr(Spanned::new(
                EmitExpr {
                    expr: self.emitted(&emit.expr)?,
                },
                emit.span(),
            )),
            Stmt::EmitRaw(raw) => {
                let value = Value::from_safe_string(raw.raw.to_owned());
                let expr = Expr::Const(Spanned::new(Const { value }, raw.span()));
                Stmt::EmitExpr(Spanned::new(EmitExpr { expr }, raw.span()))
            }
            Stmt::ForLoop(each) => Stmt::ForLoop(Spanned::new(
                ForLoop {
                    target: self.target(&each.target)?,
                    iter: self.expression(&each.iter)?,
                    filter_expr: self.optional(each.filter_expr.as_ref())?,
                    recursive: each.recursive,
                    body: self.statements(&each.body)?,
                    else_body: self.statements(&each.else_body)?,
                },
                each.span(),
            )),
            Stmt::IfCond(choice) => Stmt::IfCond(Spanned::new(
                IfCond {
                    expr: self.expression(&choice.expr)?,
                    true_body: self.statements(&choice.true_body)?,
                    false_body: self.statements(&choice.false_body)?,
                },
                choice.span(),
            )),
            Stmt::WithBlock(with) => {
                let assignments: Checked<Vec<_>> = with
                    .assignments
                    .iter()
                    .map(|(target, value)| Ok((self.target(target)?, self.expression(value)?)))
                    .collect();
                Stmt::WithBlock(Spanned::new(
                    WithBlock {
                        assignments: assignments?,
                        body: self.statements(&with.body)?,
                    },
                    with.span(),
                ))
            }
            Stmt::Set(set) => Stmt::Set(Spanned::new(
                Set {
                    target: self.target(&set.target)?,
                    expr: self.expression(&set.expr)?,
                },
                set.span(),
            )),
            Stmt::SetBlock(set) => Stmt::SetBlock(Spanned::new(
                SetBlock {
                    target: self.target(&set.target)?,
                    filter: self.optional(set.filter.as_ref())?,
                    body: self.statements(&set.body)?,
                },
                set.span(),
            )),
            Stmt::AutoEscape(escape) => Stmt::AutoEscape(Spanned::new(
                AutoEscape {
                    enabled: self.expression(&escape.enabled)?,
                    body: self.statements(&escape.body)?,
                },
                escape.span(),
            )),
            Stmt::FilterBlock(block) => Stmt::FilterBlock(Spanned::new(
                FilterBlock {
                    filter: self.expression(&block.filter)?,
                    body: self.statements(&block.body)?,
                },
                block.span(),
            )),
            Stmt::Do(done) => Stmt::Do(Spanned::new(
                Do {
                    call: self.call(&done.call)?,
                },
                done.span(),
            )),
        })
    }

    /// An emitted expression. A recursive call of a loop writes here, and has no value.
    fn emitted<'s>(&self, expression: &Expr<'s>) -> Checked<Expr<'s>> {
        match expression {
            Expr::Call(call) if is_loop(call) => Ok(Expr::Call(self.call(call)?)),
            other => self.expression(other),
        }
    }

    fn optional<'s>(&self, expression: Option<&Expr<'s>>) -> Checked<Option<Expr<'s>>> {
        expression.map(|found| self.expression(found)).transpose()
    }

    fn expressions<'s>(&self, expressions: &[Expr<'s>]) -> Checked<Vec<Expr<'s>>> {
        expressions.iter().map(|one| self.expression(one)).collect()
    }

    /// The target of an assignment: names, and lists of names.
    fn target<'s>(&self, target: &Expr<'s>) -> Checked<Expr<'s>> {
        let each = |items: &[Expr<'s>]| items.iter().map(|item| self.target(item)).collect();
        Ok(match target {
            Expr::List(list) => {
                let items: Checked<_> = each(&list.items);
                Expr::List(Spanned::new(List { items: items? }, list.span()))
            }
            Expr::Var(name) => Expr::Var(Spanned::new(Var { id: name.id }, name.span())),
            other => return Err(Refusal::new(other.span(), "cannot be assigned to")),
        })
    }

    fn charged<'s>(&self, expression: &Expr<'s>) -> Checked<Expr<'s>> {
        Ok(wrap(CHARGE_VALUE, self.expression(expression)?))
    }

    /// Copies and meters an expression. The function is long because it has one arm for each kind of expression.
    fn expression<'s>(&self, expression: &Expr<'s>) -> Checked<Expr<'s>> {
        Ok(match expression {
            Expr::Var(name) => Expr::Var(Spanned::new(Var { id: name.id }, name.span())),
            Expr::Const(found) => {
                let value = found.value.clone();
                Expr::Const(Spanned::new(Const { value }, found.span()))
            }
            Expr::Slice(slice) => wrap(
                CHARGE_RESULT,
                Expr::Slice(Spanned::new(
                    Slice {
                        expr: wrap(ONLY_PRESENT, self.charged(&slice.expr)?),
                        start: self.optional(slice.start.as_ref())?,
                        stop: self.optional(slice.stop.as_ref())?,
                        step: self.optional(slice.step.as_ref())?,
                    },
                    slice.span(),
                )),
            ),
            Expr::UnaryOp(unary) => Expr::UnaryOp(Spanned::new(
                UnaryOp {
                    op: match unary.op {
                        UnaryOpKind::Not => UnaryOpKind::Not,
                        UnaryOpKind::Neg => UnaryOpKind::Neg,
                    },
                    expr: self.expression(&unary.expr)?,
                },
                unary.span(),
            )),
            Expr::BinOp(binary) => self.binary(binary)?,
            Expr::Compare(compare) => {
                let ops: Checked<Vec<_>> = compare
                    .ops
                    .iter()
                    .map(|next| {
                        Ok(CompareOp {
                            op: next.op,
                            expr: self.charged(&next.expr)?,
                        })
                    })
                    .collect();
                let expr = self.charged(&compare.expr)?;
                Expr::Compare(Spanned::new(Compare { expr, ops: ops? }, compare.span()))
            }
            Expr::IfExpr(choice) => Expr::IfExpr(Spanned::new(
                IfExpr {
                    test_expr: self.expression(&choice.test_expr)?,
                    true_expr: self.expression(&choice.true_expr)?,
                    false_expr: self.optional(choice.false_expr.as_ref())?,
                },
                choice.span(),
            )),
            Expr::Filter(filter) => {
                check_name("filter", filter.name, &self.names.filters, filter.span())?;
                Expr::Filter(Spanned::new(
                    Filter {
                        name: filter.name,
                        expr: self.optional(filter.expr.as_ref())?,
                        args: self.arguments(&filter.args, Self::expression)?,
                    },
                    filter.span(),
                ))
            }
            Expr::Test(test) => {
                check_name("test", test.name, &self.names.tests, test.span())?;
                // A test without an argument examines the type of a value, except for those that examine letters.
                let looks =
                    !test.args.is_empty() || matches!(test.name, "lower" | "plain_name" | "upper");
                Expr::Test(Spanned::new(
                    Test {
                        name: test.name,
                        expr: if looks {
                            self.charged(&test.expr)?
                        } else {
                            self.expression(&test.expr)?
                        },
                        args: self.arguments(&test.args, Self::charged)?,
                    },
                    test.span(),
                ))
            }
            Expr::GetAttr(get) => Expr::GetAttr(Spanned::new(
                GetAttr {
                    expr: self.expression(&get.expr)?,
                    name: get.name,
                },
                get.span(),
            )),
            Expr::GetItem(get) => Expr::GetItem(Spanned::new(
                GetItem {
                    expr: wrap(CHARGE_OUTER, self.expression(&get.expr)?),
                    subscript_expr: self.charged(&get.subscript_expr)?,
                },
                get.span(),
            )),
            Expr::Call(call) => wrap(CHARGE_RESULT, Expr::Call(self.call(call)?)),
            Expr::List(list) => self.container(
                list.items.is_empty(),
                Expr::List(Spanned::new(
                    List {
                        items: self.expressions(&list.items)?,
                    },
                    list.span(),
                )),
            ),
            Expr::Tuple(tuple) => self.container(
                tuple.items.is_empty(),
                Expr::Tuple(Spanned::new(
                    Tuple {
                        items: self.expressions(&tuple.items)?,
                    },
                    tuple.span(),
                )),
            ),
            Expr::Map(map) => self.container(
                map.keys.is_empty(),
                Expr::Map(Spanned::new(
                    Map {
                        keys: self.expressions(&map.keys)?,
                        values: self.expressions(&map.values)?,
                    },
                    map.span(),
                )),
            ),
        })
    }

    fn binary<'s>(&self, binary: &Spanned<BinOp<'s>>) -> Checked<Expr<'s>> {
        use BinOpKind::{
            Add, Concat, Div, Eq, FloorDiv, Gt, Gte, In, Lt, Lte, Mul, Ne, Pow, Rem, ScAnd, ScOr,
            Sub,
        };
        let (left, right) = (
            self.expression(&binary.left)?,
            self.expression(&binary.right)?,
        );
        let op = binary.op;
        let with =
            |left, right| Expr::BinOp(Spanned::new(BinOp { op, left, right }, binary.span()));
        Ok(match op {
            ScAnd | ScOr => with(left, right),
            // These accept numbers only.
            Sub | Div | FloorDiv | Rem | Pow => with(left, right),
            Mul => with(wrap(ONLY_NUMBERS, left), wrap(ONLY_NUMBERS, right)),
            Add | Concat => wrap(
                CHARGE_RESULT,
                with(wrap(CHARGE_VALUE, left), wrap(CHARGE_VALUE, right)),
            ),
            Eq | Ne | Lt | Lte | Gt | Gte | In => {
                with(wrap(CHARGE_VALUE, left), wrap(CHARGE_VALUE, right))
            }
        })
    }

    fn call<'s>(&self, call: &Spanned<Call<'s>>) -> Checked<Spanned<Call<'s>>> {
        if let Expr::Var(name) = &call.expr {
            // A `recursive` loop is called by this name.
            if name.id != "loop" {
                check_name("function", name.id, &self.names.functions, name.span())?;
            }
        }
        let expr = self.expression(&call.expr)?;
        let args = self.arguments(&call.args, Self::charged)?;
        Ok(Spanned::new(Call { expr, args }, call.span()))
    }

    fn arguments<'s>(
        &self,
        args: &[CallArg<'s>],
        build: fn(&Self, &Expr<'s>) -> Checked<Expr<'s>>,
    ) -> Checked<Vec<CallArg<'s>>> {
        args.iter()
            .map(|arg| match arg {
                CallArg::Pos(value) => Ok(CallArg::Pos(build(self, value)?)),
                CallArg::Kwarg(name, value) => Ok(CallArg::Kwarg(name, build(self, value)?)),
                CallArg::PosSplat(value) | CallArg::KwargSplat(value) => Err(Refusal::new(
                    value.span(),
                    "arguments must be written one by one",
                )),
            })
            .collect()
    }

    /// An empty container stays a constant, because default values have to be constants.
    fn container<'s>(&self, is_empty: bool, container: Expr<'s>) -> Expr<'s> {
        if is_empty {
            container
        } else {
            wrap(CHARGE_RESULT, container)
        }
    }
}

fn is_loop(call: &Spanned<Call<'_>>) -> bool {
    matches!(&call.expr, Expr::Var(name) if name.id == "loop")
}

/// Passes a value through a filter of the meter.
fn wrap<'s>(filter: &'static str, expression: Expr<'s>) -> Expr<'s> {
    let span = expression.span();
    Expr::Filter(Spanned::new(
        Filter {
            name: filter,
            expr: Some(expression),
            args: Vec::new(),
        },
        span,
    ))
}

fn check_name(sort: &str, name: &str, allowed: &[&str], span: Span) -> Checked<()> {
    // The engine ignores spaces in names: `divisible by` is `divisibleby`.
    let name: String = name.split_ascii_whitespace().collect();
    if allowed.contains(&name.as_str()) {
        return Ok(());
    }
    Err(Refusal::new(span, format!("there is no {sort} \"{name}\"")))
}
