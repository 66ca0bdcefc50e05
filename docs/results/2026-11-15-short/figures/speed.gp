set terminal svg size 1080,540 dynamic noenhanced background rgb 'white' font 'sans,13'
set output 'speed.svg'
set title 'Training speed over the bandwidth of each link (measured)'
set xlabel 'rate of each link'
set ylabel 'samples/s'
set grid
set key outside right top Left reverse samplen 3
set logscale x 10
set xtics ('unshaped' 1000, '100mbit' 100, '14mbit' 14)
set yrange [0:*]
set xrange [9.33333:1500]
plot 'speed.dat' index 0 using 1:2:3:4 with yerrorlines linewidth 2 pointtype 4 linecolor rgb '#D55E00' title 'fp32', \
  'speed.dat' index 1 using 1:2:3:4 with yerrorlines linewidth 2 pointtype 5 linecolor rgb '#0072B2' title 'fp16', \
  'speed.dat' index 2 using 1:2:3:4 with yerrorlines linewidth 2 pointtype 6 linecolor rgb '#009E73' title 'ac-sgd'
set terminal pngcairo size 1080,540 noenhanced background rgb 'white' font 'sans,11'
set output 'speed.png'
replot
